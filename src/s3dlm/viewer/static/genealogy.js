// Who descends from whom: time runs to the right, every child is a node, survivors go on.
import { scoreColour, svg } from "./dom.js";

const PAD = 14;

// Where everything stands; also used to find what is under the pointer.
export class Layout {
  constructor(run, width) {
    this.run = run;
    this.width = width;
    this.most = Math.max(1, ...run.steps.map((step) => step.parent.length), expected(run));
    this.lane = Math.max(5, Math.min(20, 210 / this.most));
    this.height = Math.round(this.most * this.lane + 2 * PAD);
    this.gap = (width - 2 * PAD) / Math.max(1, run.total);
    this.radius = Math.max(1.4, Math.min(5, this.lane * 0.3, this.gap * 0.36));
  }

  x(step) {
    return PAD + (step + 1) * this.gap;
  }

  y(step, child) {
    const count = this.run.steps[step].parent.length;
    return this.height / 2 + (child - (count - 1) / 2) * this.lane;
  }

  nearest(x, y) {
    const step = Math.round((x - PAD) / this.gap) - 1;
    if (step < 0 || step >= this.run.steps.length) return null;
    const count = this.run.steps[step].parent.length;
    const child = Math.round((y - this.height / 2) / this.lane + (count - 1) / 2);
    return { step, child: Math.min(Math.max(child, 0), count - 1) };
  }
}

function expected(run) {
  const settings = run.header?.settings;
  return settings ? (run.method === "baseline" ? 1 : settings.particles * settings.branching) : 1;
}

export function drawGenealogy(run, layout, domain) {
  const edges = svg("g", { class: "edges" });
  const nodes = svg("g", { class: "nodes" });
  run.steps.forEach((step, index) => {
    step.parent.forEach((_, child) => {
      edges.append(edge(run, layout, index, child, domain));
      nodes.append(node(layout, step, index, child, domain));
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
  picture.querySelector(".veil").setAttribute("x", x + layout.gap / 2);
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
