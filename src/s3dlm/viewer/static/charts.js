// Small curves over the steps, all with the same time axis as the genealogy.
import { el, fixed, svg } from "./dom.js";

const HEIGHT = 92;
const EDGE = { left: 30, right: 10, top: 8, bottom: 16 };

const mean = (values) => (values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null);
const known = (values) => values.filter((value) => value !== null && value !== undefined);

// What is drawn: name, explanation, and the curves read off a step.
export const CHARTS = [
  {
    name: "Score",
    note: "survivors’ mean, and the range of all children",
    curve: (step) => mean(known(step.survivor.map((child) => step.score[child]))),
    range: (step) => known(step.score),
    domain: (run, scores) => scores,
    digits: 2,
  },
  {
    name: "Effective sample size",
    note: "how many children carry weight; dashed: parents with offspring",
    curve: (step) => step.ess,
    second: (step) => step.unique_ancestors,
    domain: (run) => [0, Math.max(2, ...run.steps.map((step) => step.weight.length))],
    digits: 1,
  },
  {
    name: "Confidence",
    note: "survivors’ mean, and the range of all children",
    curve: (step) => mean(known(step.survivor.map((child) => step.confidence[child]))),
    range: (step) => known(step.confidence),
    domain: (run) => [Math.min(0.9, Math.floor(10 * Math.min(...run.steps.flatMap((step) => known(step.confidence)), 1)) / 10), 1],
    digits: 2,
  },
];

// A method that scores nothing has no curve of scores.
export function hasCurve(chart, run) {
  return run.steps.some((step) => chart.curve(step) !== null);
}

export function drawChart(chart, run, width, scores) {
  const [low, high] = chart.domain(run, scores);
  const x = (step) => EDGE.left + (step + 0.5) * (width - EDGE.left - EDGE.right) / Math.max(1, run.total);
  const y = (value) => HEIGHT - EDGE.bottom - (value - low) / (high - low || 1) * (HEIGHT - EDGE.top - EDGE.bottom);
  const picture = svg(
    "svg",
    { class: "chart", viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: "img", "aria-label": `${chart.name} over the steps` },
    ...axis(width, low, high, y, chart.digits, run.total),
    svg("path", { class: "range", d: chart.range ? band(run, chart.range, x, y) : "" }),
    svg("path", { class: "second", d: chart.second ? line(run, chart.second, x, y) : "" }),
    svg("path", { class: "curve", d: line(run, chart.curve, x, y) }),
    svg("line", { class: "cursor", y1: EDGE.top - 4, y2: HEIGHT - EDGE.bottom }),
    svg("circle", { class: "point", r: 3.5 }),
  );
  const value = el("output", {});
  const figure = el(
    "figure",
    { class: "small" },
    el("figcaption", {}, el("b", {}, chart.name), value, el("span", {}, chart.note)),
    picture,
  );
  figure.point = (step) => {
    const now = run.steps[step] ? chart.curve(run.steps[step]) : null;
    for (const name of ["x1", "x2"]) picture.querySelector(".cursor").setAttribute(name, x(step));
    const point = picture.querySelector(".point");
    point.toggleAttribute("hidden", now === null);
    if (now !== null) {
      point.setAttribute("cx", x(step));
      point.setAttribute("cy", y(now));
    }
    value.textContent = fixed(now, chart.digits);
  };
  figure.stepAt = (pixels) => Math.round((pixels - EDGE.left) / ((width - EDGE.left - EDGE.right) / Math.max(1, run.total)) - 0.5);
  return figure;
}

function axis(width, low, high, y, digits, total) {
  const marks = [low, (low + high) / 2, high].map((value) =>
    svg("g", { class: "tick" },
      svg("line", { x1: EDGE.left, x2: width - EDGE.right, y1: y(value), y2: y(value) }),
      svg("text", { x: EDGE.left - 6, y: y(value) + 3.5, "text-anchor": "end" }, value.toFixed(high - low > 2 ? 0 : digits === 1 ? 1 : 2)),
    ));
  return [
    ...marks,
    svg("text", { class: "foot", x: EDGE.left, y: HEIGHT - 3 }, "1"),
    total > 1 ? svg("text", { class: "foot", x: width - EDGE.right, y: HEIGHT - 3, "text-anchor": "end" }, `${total}`) : null,
  ];
}

function line(run, read, x, y) {
  let open = false;
  let path = "";
  run.steps.forEach((step, index) => {
    const value = read(step);
    if (value === null) {
      open = false;
      return;
    }
    path += `${open ? "L" : "M"}${x(index).toFixed(1)} ${y(value).toFixed(1)}`;
    open = true;
  });
  return path;
}

function band(run, read, x, y) {
  const points = run.steps.map((step, index) => [x(index), read(step)]).filter(([, values]) => values.length);
  if (!points.length) return "";
  const side = (pick) => points.map(([at, values]) => `${at.toFixed(1)} ${y(pick(...values)).toFixed(1)}`);
  return `M${side(Math.max).join("L")}L${side(Math.min).reverse().join("L")}Z`;
}
