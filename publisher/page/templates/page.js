"use strict";
// Show the values of a plot at the pointer, or for the arrow keys. Without scripts, the table has them.
for (const area of document.querySelectorAll(".area[data-points]")) {
  const points = JSON.parse(area.dataset.points);
  const pointer = area.querySelector(".pointer");
  const readout = area.closest("figure").querySelector(".readout");
  let at = -1;
  const show = (place) => {
    at = Math.max(0, Math.min(points.names.length - 1, place));
    const share = points.shares[at] * 100 + "%";
    pointer.setAttribute("x1", share);
    pointer.setAttribute("x2", share);
    pointer.classList.add("on");
    const values = points.series.map(([label, known]) => `${label} ${known[at] === null ? "not known" : known[at].toLocaleString("en")}`);
    readout.textContent = `${points.names[at]}: ${values.join(", ")}`;
  };
  const nearest = (share) => {
    let best = 0;
    points.shares.forEach((one, place) => { if (Math.abs(one - share) < Math.abs(points.shares[best] - share)) best = place; });
    return best;
  };
  area.addEventListener("pointermove", (event) => {
    const box = area.getBoundingClientRect();
    show(nearest((event.clientX - box.left) / box.width));
  });
  area.addEventListener("keydown", (event) => {
    const steps = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -points.names.length, End: points.names.length };
    if (event.key in steps) {
      event.preventDefault();
      show(at + steps[event.key]);
    }
  });
}
