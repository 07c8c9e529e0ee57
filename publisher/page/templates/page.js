"use strict";
// On a phone the menu is wider than the page: begin with what is shown.
const here = document.querySelector("nav [aria-current]");
if (here) here.closest("ul").scrollLeft = here.offsetLeft - 60;
// Comfort only: charts tell their values where one points, and to the arrow keys. Without it the tables have them all.
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
    const told = points.series.map(([label, values]) => `${label} ${values[at] === null ? "not known" : values[at]}`);
    readout.textContent = `${points.names[at]}: ${told.join(", ")}`;
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
