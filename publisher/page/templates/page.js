"use strict";
// Draw the plots: their data are in the page, their values also in its tables. Texts are only ever set as text.
const element = (name, text, ...classes) => {
  const made = document.createElement(name);
  made.classList.add(...classes);
  made.textContent = text;
  return made;
};
const shape = (name, facts) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(facts)) made.setAttribute(key, value);
  return made;
};
const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const numberText = (value) =>
  value === null || value === undefined ? "unknown" : value.toLocaleString("en", { maximumFractionDigits: Math.abs(value) < 10 ? 2 : Math.abs(value) < 100 ? 1 : 0 });
const isBar = () => document.querySelector("#style-bar")?.checked ?? document.querySelector("main").classList.contains("style-bar");
const hasGrid = () => document.querySelector("#grid")?.checked ?? !document.querySelector("main").classList.contains("no-grid");
const DASHES = [[], [7, 3], [2, 2], [8, 3, 2, 3], [11, 4], [5, 2, 2, 2], [2, 3]];
const DAY = 86400;
const GAP = 0.06; // between bars, as a part of their bin
// By step of the ticks: the text of a tick, then what it begins with at a new year, day, and minute.
const TICKS = [
  [365 * DAY, "{YYYY}", null, null, null, null, null, null, 1],
  [28 * DAY, "{MMM}", "\n{YYYY}", null, null, null, null, null, 1],
  [DAY, "{D} {MMM}", "\n{YYYY}", null, null, null, null, null, 1],
  [60, "{HH}:{mm}", "\n{D} {MMM} {YYYY}", null, "\n{D} {MMM}", null, null, null, 1],
  [1, "{HH}:{mm}:{ss}", "\n{D} {MMM} {YYYY}", null, "\n{D} {MMM}", null, null, null, 1],
];
const SHADES = [[0x00, 0x22, 0x4e], [0x7d, 0x7c, 0x78], [0xfe, 0xe8, 0x38]]; // cividis
const shade = (percent) => {
  const share = Math.max(0, Math.min(1, percent / 100)) * 2;
  const [low, high] = share < 1 ? SHADES : SHADES.slice(1);
  return `rgb(${low.map((one, at) => Math.round(one + (high[at] - one) * (share < 1 ? share : share - 1))).join(" ")})`;
};

function overTime(box, chart) {
  const figure = box.closest("figure");
  const readout = figure.querySelector(".readout");
  const { edges, names, series } = chart;
  const heat = chart.kind === "heat";
  const without = new Set(chart.without_jobs);
  const textAt = (one, bin) => (without.has(bin) && one.values[bin] === null ? "no jobs" : numberText(one.values[bin]));
  const middles = names.map((_, at) => (edges[at] + edges[at + 1]) / 2);
  const whole = [edges[0], Math.max(chart.end, edges[names.length])];
  const hidden = new Set();
  let range = whole, at = -1, row = 0, plot = null; // the bin, and of heat maps the row, whose values are shown

  // The shown series; those that add up begin at the end of the one below. A bin without any known value is a gap.
  const layers = () => {
    const shown = series.flatMap((one, place) => (hidden.has(place) ? [] : [place]));
    const ends = new Array(names.length).fill(0);
    const made = shown.map((place) => {
      const own = series[place].values;
      if (!chart.stacked) return { place, own, below: ends, values: own };
      const below = [...ends];
      const values = own.map((value, bin) => {
        ends[bin] += value ?? 0;
        return shown.every((other) => series[other].values[bin] === null) ? null : ends[bin];
      });
      return { place, own, below, values };
    });
    return chart.stacked ? made.reverse() : made; // lower areas are drawn over the upper ones
  };

  const boxOf = (bin, part, parts) => {
    const width = edges[bin + 1] - edges[bin];
    const left = edges[bin] + width * (GAP + ((1 - 2 * GAP) * part) / parts);
    return [left, left + (width * (1 - 2 * GAP)) / parts];
  };

  // Bars as wide as their bins: a layer upon the ones below, or beside those with which it does not add up.
  const barPaths = (layer, part, parts) => (one) => {
    const fill = new Path2D();
    layer.own.forEach((value, bin) => {
      if (value === null) return;
      const [left, right] = boxOf(bin, part, parts).map((instant) => one.valToPos(instant, "x", true));
      const top = one.valToPos(layer.below[bin] + value, "y", true), bottom = one.valToPos(layer.below[bin], "y", true);
      fill.rect(left, top, Math.max(1, right - left), bottom - top);
    });
    return { fill, stroke: fill, clip: null, band: null, gaps: null, flags: 0 };
  };

  const drawUnknown = (shown) => (one) => {
    const { ctx, bbox } = one;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.fillStyle = ink("--ink");
    ctx.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
    ctx.textAlign = "center";
    ctx.textBaseline = "bottom";
    const parts = chart.stacked ? 1 : shown.length;
    shown.forEach((layer, part) => layer.own.forEach((value, bin) => {
      if (value !== null || without.has(bin)) return;
      const [left, right] = boxOf(bin, chart.stacked ? 0 : part, parts);
      const end = chart.stacked ? Math.max(...shown.map((other) => other.values[bin] ?? 0)) : 0;
      ctx.fillText("?", one.valToPos((left + right) / 2, "x", true), one.valToPos(end, "y", true) - 2);
    }));
    ctx.restore();
  };

  const size = () => ({
    width: Math.max(200, box.clientWidth),
    height: heat ? Math.min(640, 60 + series.length * Math.max(12, Math.min(28, 400 / series.length))) : box.clientWidth < 600 ? 250 : 340,
  });

  const drawCells = () => {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    series.forEach((row, place) => {
      const top = plot.valToPos(place, "y", true), bottom = plot.valToPos(place + 1, "y", true);
      row.values.forEach((value, bin) => {
        const left = plot.valToPos(edges[bin], "x", true), right = plot.valToPos(edges[bin + 1], "x", true);
        ctx.fillStyle = value === null ? ink("--unknown") : shade(value);
        ctx.fillRect(Math.floor(left), Math.floor(top), Math.ceil(right - left) , Math.ceil(bottom - top));
      });
    });
    ctx.restore();
  };

  // Hatches over bins that are incomplete, and a line at the last collection.
  const drawMarks = (one) => {
    const { ctx, bbox } = one;
    const place = (seconds) => Math.max(bbox.left, Math.min(bbox.left + bbox.width, one.valToPos(seconds, "x", true)));
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = ink("--soft");
    ctx.setLineDash([]);
    ctx.beginPath();
    for (const bin of chart.partial) ctx.rect(place(edges[bin]), bbox.top, place(edges[bin + 1]) - place(edges[bin]), bbox.height);
    ctx.clip();
    ctx.beginPath();
    for (let x = bbox.left - bbox.height; x < bbox.left + bbox.width; x += 9) {
      ctx.moveTo(x, bbox.top + bbox.height);
      ctx.lineTo(x + bbox.height, bbox.top);
    }
    ctx.globalAlpha = 0.35;
    ctx.stroke();
    ctx.restore();
    if (chart.known_until > range[0] && chart.known_until < range[1]) {
      ctx.fillStyle = ink("--soft");
      ctx.fillRect(place(chart.known_until), bbox.top, 1, bbox.height);
    }
  };

  const draw = () => {
    plot?.destroy();
    const style = heat ? "heat" : isBar() ? (chart.outlined ? "outline" : "bar") : "line";
    const bars = style === "bar", outlines = style === "outline";
    const shown = heat ? [] : layers();
    const line = { stroke: ink("--line"), width: 1 };
    const axis = { stroke: ink("--ink"), font: "12px system-ui, sans-serif", ticks: line };
    const filled = chart.stacked && series.length > 1;
    const rowStep = Math.ceil(series.length / 40);
    const rows = series.map((_, place) => place).filter((place) => place % rowStep === 0);
    const options = {
      ...size(),
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1e3), chart.zone),
      legend: { show: false },
      padding: [10, 26, 0, 0],
      scales: {
        x: { range: () => range },
        y: heat ? { range: () => [0, series.length], dir: -1 } : { range: (_, low, high) => [Math.min(0, low ?? 0), Math.max(high * 1.05, chart.top) || 1] },
      },
      axes: [
        { ...axis, values: TICKS, grid: { ...line, show: hasGrid() }, space: 60 },
        {
          ...axis,
          grid: { ...line, show: !heat },
          splits: heat ? () => rows.map((place) => place + 0.5) : undefined,
          values: (_, values) => values.map((value) => (heat ? short(series[Math.floor(value)].label) : value.toLocaleString("en"))),
          size: (_, values) => 18 + 7 * Math.max(1, ...(values ?? []).map((text) => text.length)),
        },
      ],
      cursor: { drag: { x: true, y: false, setScale: false }, points: { show: style === "line" && !filled }, y: heat },
      series: [
        {},
        ...(heat ? [{ paths: () => null, points: { show: false } }] : shown.map((layer, part) => {
          const colour = ink(series[layer.place].colour);
          return {
            stroke: filled ? ink("--paper") : colour,
            fill: filled || bars ? colour : outlines ? colour + "99" : undefined,
            width: filled || bars ? 0.5 : 1.8,
            dash: filled || style !== "line" || names.length > 400 ? [] : DASHES[layer.place % DASHES.length],
            paths: bars ? barPaths(layer, chart.stacked ? 0 : part, chart.stacked ? 1 : shown.length) : outlines ? uPlot.paths.stepped({ align: 1 }) : undefined,
            points: { show: style === "line" && names.length < 3 ? true : style === "line" ? undefined : false },
          };
        })),
      ],
      hooks: {
        draw: heat ? [drawCells, drawMarks] : bars ? [drawMarks, drawUnknown(shown)] : [drawMarks],
        setCursor: [(one) => {
          if (one.cursor.left < 0) return;
          const instant = one.posToVal(one.cursor.left, "x");
          let bin = names.length - 1;
          while (bin > 0 && edges[bin] > instant) bin -= 1;
          at = bin;
          if (heat) row = Math.max(0, Math.min(series.length - 1, Math.floor(one.posToVal(one.cursor.top, "y"))));
          say();
        }],
        setSelect: [(one) => {
          if (one.select.width < 5) return;
          zoom(one.posToVal(one.select.left, "x"), one.posToVal(one.select.left + one.select.width, "x"));
          one.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
        }],
      },
    };
    const ended = (values) => [...values, values[values.length - 1]];
    const data = heat ? [middles, middles.map(() => 0)] : [outlines ? edges : middles, ...shown.map(({ values }) => (outlines ? ended(values) : values))];
    plot = new uPlot(options, data, box);
    box.dataset.drawn = style === "outline" ? "bar" : style;
    mark();
  };

  const short = (text) => (text.length > 24 ? `${text.slice(0, 11)}\u2026${text.slice(-12)}` : text);

  const say = () => {
    const texts = !heat
      ? series.flatMap((one, place) => (hidden.has(place) ? [] : [`${one.label} ${textAt(one, at)}`]))
      : [`${series[row].label} ${numberText(series[row].values[at])}${series[row].values[at] === null ? "" : " %"}`];
    readout.textContent = `${names[at]}: ${texts.join(", ")}`;
    values.forEach((one, place) => { one.textContent = textAt(series[place], at); });
  };

  // Put the cursor on the bin whose values are shown.
  const mark = () => {
    if (at < 0) return;
    const seen = middles[at] >= range[0] && middles[at] <= range[1];
    const top = heat ? plot.valToPos(row + 0.5, "y") : plot.bbox.height / devicePixelRatio / 2;
    plot.setCursor({ left: seen ? plot.valToPos(middles[at], "x") : -10, top });
  };

  // --- zoom
  const tools = element("p", "", "tools");
  const whole_button = element("button", "Whole interval");
  const closer = element("button", "Zoom in");
  const wider = element("button", "Zoom out");
  const link = element("a", "Report of this interval");
  const zoom = (from, to) => {
    const least = (whole[1] - whole[0]) / 10_000;
    if (to - from < least) return;
    range = [Math.max(whole[0], from), Math.min(whole[1], to)];
    const shown = [at, row];
    plot.batch(() => plot.setScale("x", { min: range[0], max: range[1] })); // at once, for the cursor
    [at, row] = shown; // another bin is at the old place of the cursor
    mark();
    const zoomed = range[0] > whole[0] || range[1] < whole[1];
    whole_button.disabled = wider.disabled = !zoomed;
    const form = document.getElementById("ask");
    link.hidden = !zoomed || !form?.elements.until;
    if (link.hidden) return;
    const address = new URL(form.action);
    for (const [name, value] of new FormData(form)) if (value) address.searchParams.set(name, value);
    const stamp = (seconds) => new Date(Math.round(seconds / 60) * 60e3).toISOString().slice(0, 16) + "Z";
    address.searchParams.set("since", stamp(range[0]));
    address.searchParams.set("until", stamp(range[1]));
    link.href = address.href;
  };
  const scale = (factor) => {
    const middle = at >= 0 && middles[at] > range[0] && middles[at] < range[1] ? middles[at] : (range[0] + range[1]) / 2;
    const half = ((range[1] - range[0]) * factor) / 2;
    zoom(middle - half, middle + half);
  };
  for (const one of [closer, wider, whole_button]) one.type = "button";
  whole_button.disabled = wider.disabled = link.hidden = true;
  whole_button.addEventListener("click", () => zoom(...whole));
  closer.addEventListener("click", () => scale(0.5));
  wider.addEventListener("click", () => scale(2));
  tools.append(closer, wider, whole_button, link);

  // --- the legend: which series are shown, and their values at the pointer
  const values = [];
  if (!heat && (series.length > 1 || chart.by)) {
    const legend = element("ul", "", "legend");
    legend.setAttribute("aria-label", "Series");
    if (chart.by) legend.append(element("li", `${chart.by}:`, "by"));
    const items = series.map((one, place) => {
      const item = element("li", "");
      const button = element("button", "", "series");
      const swatch = shape("svg", { class: "swatch", width: 22, height: 12, "aria-hidden": "true" });
      swatch.append(shape("rect", { width: 22, height: 12, fill: `var(${one.colour})` }));
      if (!chart.stacked) swatch.append(shape("line", { x1: 0, x2: 22, y1: 6, y2: 6, stroke: `var(${one.colour})`, "stroke-width": 3, "stroke-dasharray": DASHES[place % DASHES.length].join(" ") }));
      const value = element("span", "", "value");
      values.push(value);
      button.append(swatch, element("span", one.label), value);
      button.type = "button";
      button.setAttribute("aria-pressed", "true");
      button.addEventListener("click", () => {
        if (!hidden.delete(place)) hidden.add(place);
        button.setAttribute("aria-pressed", String(!hidden.has(place)));
        draw();
      });
      item.append(button);
      return item;
    });
    legend.append(...(chart.stacked ? items.reverse() : items));
    readout.before(legend);
  }
  readout.before(tools);

  // --- keys. A screen reader passes them on to an application, not to an image.
  box.setAttribute("role", "application");
  box.setAttribute("aria-roledescription", "plot");
  box.setAttribute("aria-keyshortcuts", `ArrowLeft ArrowRight ${heat ? "ArrowUp ArrowDown " : ""}PageUp PageDown Home End + - Escape`);
  const go = (bin) => {
    at = Math.max(0, Math.min(names.length - 1, bin));
    const width = range[1] - range[0];
    const from = Math.max(whole[0], Math.min(whole[1] - width, middles[at] - width / 2));
    if (middles[at] < range[0] || middles[at] > range[1]) zoom(from, from + width);
    else mark();
  };
  box.addEventListener("keydown", (event) => {
    const steps = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -names.length, End: names.length };
    const rows = heat ? { ArrowUp: -1, ArrowDown: 1 } : {};
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.key in steps) go(at + steps[event.key]);
    else if (event.key in rows) {
      row = Math.max(0, Math.min(series.length - 1, row + rows[event.key]));
      go(Math.max(0, at));
    } else if (event.key === "+" || event.key === "-") scale(event.key === "+" ? 0.5 : 2);
    else if (event.key === "Escape") zoom(...whole);
    else return;
    event.preventDefault();
  });
  draw();
  new ResizeObserver(() => { if (box.clientWidth) plot.setSize(size()); }).observe(figure);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  for (const one of document.querySelectorAll("#style-line, #style-bar, #grid")) one.addEventListener("change", draw);
}

// What hatches the bars of the period before.
function hatches(number) {
  const pattern = shape("pattern", { id: `hatches-${number}`, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" });
  pattern.append(shape("rect", { width: 6, height: 6, fill: "var(--other)" }), shape("rect", { width: 2, height: 6, fill: "var(--paper)" }));
  const defined = shape("svg", { width: 0, height: 0, class: "hatches", "aria-hidden": "true" });
  defined.append(pattern);
  return defined;
}

function overNames(box, chart, number) {
  const { names, series, stacks } = chart;
  const ink = (one) => (one.before ? `url(#hatches-${number})` : `var(${one.colour})`);
  let low = 0, high = 0;
  names.forEach((_, at) => stacks.forEach((stack) => {
    const sum = stack.reduce((total, place) => total + (series[place].values[at] ?? 0), 0);
    low = Math.min(low, sum);
    high = Math.max(high, sum);
  }));
  const span = high - low || 1;
  box.classList.add("named");
  names.forEach((name, at) => {
    const thick = stacks.length === 1 ? 20 : 12;
    const bars = shape("svg", { class: "lying", width: "100%", height: thick * stacks.length });
    stacks.forEach((stack, row) => {
      let below = 0;
      for (const place of stack) {
        const one = series[place], value = one.values[at];
        if (value === null) continue;
        const bar = shape("rect", {
          x: `${(100 * (Math.min(below, below + value) - low)) / span}%`, width: `${(100 * Math.abs(value)) / span}%`,
          fill: ink(one), y: row * thick, height: thick,
        });
        below += value;
        const title = shape("title", {});
        title.textContent = `${name}, ${one.label}: ${numberText(value)} ${chart.unit}`;
        bar.append(title);
        bars.append(bar);
      }
    });
    box.append(element("span", name, "name"), bars, element("span", chart.amounts[at], "value"));
  });
  if (series.some((one) => one.before)) box.after(hatches(number));
  if (series.length > 1) {
    const legend = element("ul", "", "legend");
    for (const one of series) {
      const item = element("li", "");
      const swatch = shape("svg", { class: "swatch", width: 14, height: 14 });
      swatch.append(shape("rect", { width: 14, height: 14, fill: ink(one) }));
      item.append(swatch, ` ${one.label}`);
      legend.append(item);
    }
    box.after(legend);
  }
}

[...document.querySelectorAll("[data-chart]")].forEach((box, number) => {
  const chart = JSON.parse(box.dataset.chart);
  (chart.kind === "names" ? overNames : overTime)(box, chart, number);
});
