// Who descends from whom: time runs to the right, every child is a node, survivors go on.
import { scoreColour, svg } from "./dom.js";

const PAD = 14;
const FOLDED = 0.16; // the width of a step that changed nothing, against one that did

// Where everything stands; also used to find what is under the pointer.
export class Layout {
  // Folded steps are narrow, and only their survivors are drawn.
  constructor(run, width, fold = true) {
    this.run = run;
    const unchanged = run.steps.map((_, step) => changesNothing(run, step));
    const changed = unchanged.filter((one) => !one).length;
    this.words = changed < unchanged.length ? `${changed} of ${unchanged.length} steps are drawn; in the others every particle has one child` : "";
    this.isFolded = (step) => fold && Boolean(unchanged[step]);
    const sizes = Array.from({ length: Math.max(run.total, run.steps.length, 1) }, (_, step) => (this.isFolded(step) ? FOLDED : 1));
    const unit = (width - 2 * PAD) / sizes.reduce((sum, one) => sum + one, 0);
    let at = PAD;
    this.places = sizes.map((size) => (at += size * unit));
    this.gaps = sizes.map((size) => size * unit);
    this.width = width;
    this.most = Math.max(1, ...run.steps.map((step) => step.parent.length), expected(run));
    this.lane = Math.max(5, Math.min(20, 210 / this.most));
    this.height = Math.round(this.most * this.lane + 2 * PAD);
    this.radius = Math.max(1.4, Math.min(5, this.lane * 0.3, unit * 0.36));
  }

  x(step) {
    return step < 0 ? PAD : this.places[Math.min(step, this.places.length - 1)]; // a step may arrive first
  }

  y(step, child) {
    const { parent, survivor } = this.run.steps[step];
    const slot = this.isFolded(step) ? survivor.indexOf(child) : -1;
    if (slot < 0) return this.height / 2 + (child - (parent.length - 1) / 2) * this.lane;
    const lane = this.lane * parent.length / survivor.length;
    return this.height / 2 + (slot - (survivor.length - 1) / 2) * lane;
  }

  nearest(x, y) {
    const count = this.run.steps.length;
    if (!count || x < PAD || x > this.places[count - 1] + this.gaps[count - 1] / 2) return null;
    const near = (values, value) => values.reduce((best, one, index) => (Math.abs(one - value) < Math.abs(values[best] - value) ? index : best), 0);
    const step = near(this.places.slice(0, count), x);
    const one = this.run.steps[step];
    const children = this.isFolded(step) ? one.survivor : one.parent.map((_, child) => child);
    return { step, child: children[near(children.map((child) => this.y(step, child)), y)] };
  }
}

// A step that leaves every line of descent as it was: each particle has one heir.
function changesNothing(run, step) {
  if (step === 0) return false;
  const { parent, survivor } = run.steps[step];
  const heirs = new Set(survivor.map((child) => parent[child]));
  return heirs.size === survivor.length && survivor.length === run.steps[step - 1].survivor.length;
}

function expected(run) {
  const { particles = 1, branching = 1 } = run.header?.settings ?? {};
  return particles * branching;
}

export function drawGenealogy(run, layout, domain) {
  const edges = svg("g", { class: "edges" });
  const nodes = svg("g", { class: "nodes" });
  run.steps.forEach((step, index) => {
    step.parent.forEach((_, child) => {
      if (layout.isFolded(index) && !step.copies[child]) return;
      edges.append(edge(run, layout, index, child, domain));
      if (!layout.isFolded(index)) nodes.append(node(layout, step, index, child, domain));
    });
  });
  const root = svg("circle", { class: "root", cx: PAD, cy: layout.height / 2, r: layout.radius + 1 });
  return svg(
    "svg",
    {
      class: "genealogy",
      viewBox: `0 0 ${layout.width} ${layout.height}`,
      width: layout.width,
      height: layout.height,
      role: "img",
      "aria-label": `Genealogy of ${run.steps.length} steps; filled nodes survived, hollow ones died`,
    },
    edges,
    winnerLine(run, layout),
    nodes,
    root,
    svg("rect", { class: "veil", y: 0, height: layout.height, x: 0, width: layout.width }),
    svg("line", { class: "cursor", y1: 2, y2: layout.height - 2 }),
    svg("path", { class: "ancestry" }),
    svg("circle", { class: "focus", r: layout.radius + 3.5 }),
  );
}

function edge(run, layout, step, child, domain) {
  const one = run.steps[step];
  return svg("path", {
    class: one.copies[child] ? "edge" : "edge dead",
    d: curve(run, layout, step, child),
    "--score": scoreColour(one.score[child], domain),
  });
}

function curve(run, layout, step, child) {
  const parent = run.parentChild(step, child);
  const x0 = layout.x(step - 1);
  const y0 = parent === null || parent === undefined ? layout.height / 2 : layout.y(step - 1, parent);
  const x1 = layout.x(step);
  const y1 = layout.y(step, child);
  const middle = (x0 + x1) / 2;
  return `M${x0.toFixed(1)} ${y0.toFixed(1)}C${middle.toFixed(1)} ${y0.toFixed(1)} ${middle.toFixed(1)} ${y1.toFixed(1)} ${x1.toFixed(1)} ${y1.toFixed(1)}`;
}

function node(layout, step, index, child, domain) {
  const copies = step.copies[child];
  const colour = scoreColour(step.score[child], domain);
  return svg("circle", {
    class: copies ? "node" : "node dead",
    cx: layout.x(index).toFixed(1),
    cy: layout.y(index, child).toFixed(1),
    r: (copies ? layout.radius * Math.min(1.6, Math.sqrt(copies)) : layout.radius * 0.72).toFixed(2),
    "--score": colour,
  });
}

function winnerLine(run, layout) {
  const path = run.winner().map((child, step) => (child === undefined ? "" : curve(run, layout, step, child)));
  return svg("path", { class: "winner", d: path.join("") });
}

export function pointGenealogy(picture, run, layout, step, focus) {
  const x = layout.x(step);
  picture.querySelector(".veil").setAttribute("x", x + (layout.gaps[step] ?? 0) / 2);
  const cursor = picture.querySelector(".cursor");
  cursor.setAttribute("x1", x);
  cursor.setAttribute("x2", x);
  const ring = picture.querySelector(".focus");
  const trail = picture.querySelector(".ancestry");
  ring.toggleAttribute("hidden", !focus);
  if (!focus) {
    trail.setAttribute("d", "");
    return;
  }
  ring.setAttribute("cx", layout.x(focus.step));
  ring.setAttribute("cy", layout.y(focus.step, focus.child));
  const line = run.lineage(focus.step, focus.child);
  trail.setAttribute("d", line.map((child, at) => curve(run, layout, at, child)).join(""));
}
