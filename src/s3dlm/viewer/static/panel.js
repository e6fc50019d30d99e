// One search on screen: texts, genealogy, curves, the particle in focus, the vote.
import { el, fixed, scoreRamp } from "./dom.js";
import { inspector, particleRow, verdict, votes } from "./particles.js";
import { Layout, drawGenealogy, pointGenealogy } from "./genealogy.js";
import { CHARTS, drawChart, hasCurve } from "./charts.js";

export class Panel {
  // `view` is shared by all panels: step, ghosts, everyone, domain, summaries, seek(step).
  constructor(run, view) {
    this.run = run;
    this.view = view;
    this.focus = null; // chosen by click or arrows, belongs to a step
    this.hover = null;
    this.drawn = "";
    this.build();
  }

  build() {
    this.status = el("span", { class: "status" });
    this.facts = el("span", { class: "sum" });
    this.list = el("ol", { class: "particles", onclick: (event) => this.pick(event), onpointerover: (event) => this.over(event), onpointerleave: () => this.point(null), onfocusin: (event) => this.over(event) });
    this.legend = el("span", { class: "legend" });
    this.ramp = el("span", { class: "ramp" });
    this.tree = el("div", { class: "tree" });
    this.curves = el("div", { class: "curves" });
    this.detail = el("div", { class: "detail" });
    this.vote = el("div", { class: "vote" });
    this.answer = el("span", { class: "answer" });
    this.failure = el("p", { class: "failure", role: "alert", hidden: true });
    this.folding = el("input", { type: "checkbox", onchange: () => { this.drawn = ""; this.draw(); } });
    this.folded = el("p", { class: "soft folded" });
    this.below = el("div", { class: "below" }, this.folded, el("label", { class: "toggle", title: "Also show the steps that changed nothing" }, this.folding, "Every step"));
    this.node = el(
      "article",
      { class: "panel", "aria-label": `Search by ${this.run.name}` },
      el(
        "header",
        {},
        el("h2", {}, this.run.name),
        this.status,
        this.answer,
        el("span", { class: "gap" }),
        this.facts,
        el("button", { type: "button", class: "quiet save", onclick: () => this.save() }, "Save trace"),
      ),
      el("p", { class: "summary" }, this.view.summaries[this.run.method] ?? ""),
      this.failure,
      el(
        "div",
        { class: "cards" },
        el(
          "div",
          { class: "column" },
          card("texts", "Particles", this.legend, this.list),
          card("ancestors", "Genealogy", el("span", { class: "legend" }, el("i", { class: "dot" }), "survived", el("i", { class: "dot dead" }), "died", el("i", { class: "stroke" }), "the answer’s line", this.ramp), this.tree, this.below),
          card("time", "Over the steps", null, this.curves),
        ),
        el("div", { class: "column" }, card("judge", "Verifier", null, this.detail), card("ballot", "Final vote", null, this.vote)),
      ),
    );
    this.tree.addEventListener("pointermove", (event) => this.overTree(event));
    this.tree.addEventListener("pointerleave", () => this.point(null));
    this.tree.addEventListener("click", (event) => this.pickTree(event));
    this.curves.addEventListener("click", (event) => this.pickCurve(event));
  }

  get step() {
    return Math.min(this.view.step, this.run.steps.length - 1);
  }

  // What the inspector shows: under the pointer, else chosen, else the best survivor.
  get looked() {
    if (this.hover && this.run.steps[this.hover.step]) return this.hover;
    if (this.focus && this.focus.step === this.step) return this.focus;
    const child = this.run.best(this.step);
    return child === null ? null : { step: this.step, child };
  }

  // Everything that depends on the data, the width or the colours.
  draw() {
    const width = Math.max(260, this.tree.clientWidth || 600);
    const key = [this.run.steps.length, this.run.state, width, document.documentElement.dataset.theme, this.view.domain].join();
    if (key !== this.drawn) {
      this.drawn = key;
      this.layout = new Layout(this.run, width, !this.folding.checked);
      this.folded.textContent = this.layout.words;
      this.below.hidden = !this.layout.words;
      this.picture = drawGenealogy(this.run, this.layout, this.view.domain);
      this.tree.replaceChildren(this.picture);
      // Empty figures first, so that a chart knows its width before it is drawn.
      const charts = CHARTS.filter((chart) => hasCurve(chart, this.run));
      if (this.curves.children.length !== charts.length) this.curves.replaceChildren(...charts.map(() => el("figure", { class: "small" })));
      const across = Math.max(220, this.curves.firstElementChild?.clientWidth || 300);
      this.charts = charts.map((chart) => drawChart(chart, this.run, across, this.view.domain));
      this.curves.replaceChildren(...this.charts);
      this.ramp.hidden = !charts.some((chart) => chart.name === "Score");
      this.ramp.replaceChildren(fixed(this.view.domain[0], 1), el("i", { "--ramp": scoreRamp(this.view.domain) }), fixed(this.view.domain[1], 1));
      this.vote.replaceChildren(...votes(this.run, this.view.domain));
    }
    this.show();
  }

  // Everything that depends on the time.
  show() {
    const { run, step } = this;
    const words = { waiting: "waiting", running: "running", done: "done", failed: "failed" };
    this.status.textContent = run.steps.length ? `step ${step + 1} of ${run.total}` : words[run.state];
    this.status.dataset.state = run.state;
    this.failure.hidden = run.state !== "failed";
    this.failure.textContent = run.state === "failed" ? `The search failed: ${run.error}` : "";
    this.node.classList.toggle("broken", run.state === "failed" && !run.steps.length);
    const ended = run.result && step === run.steps.length - 1;
    this.answer.replaceChildren(...(ended ? ["answer ", el("b", {}, run.result.answer ?? "none found"), " ", ...verdict(run)] : []));
    if (step < 0) return;
    const one = run.steps[step];
    const { particles, branching } = run.header.settings;
    const sizes = [["N", particles], ["b", branching]].filter(([, size]) => size !== undefined).map((pair) => `${pair.join(" ")} · `);
    const why = ended ? { satisfied: " · the verifier is satisfied", budget: " · the budget is spent" }[run.result.stopped] ?? "" : "";
    this.facts.textContent = `${sizes.join("")}${run.nfe(step)} passes · ESS ${fixed(one.ess, 1)} of ${one.weight.length}${why}`;
    this.texts();
    this.charts?.forEach((chart) => chart.point(step));
    this.node.classList.toggle("over", Boolean(ended));
    this.mark();
  }

  texts() {
    const { run, step, view } = this;
    const columns = run.header.columns;
    this.list.classList.toggle("grids", Boolean(columns));
    this.vote.classList.toggle("puzzle", Boolean(columns));
    this.vote.style.setProperty("--columns", columns ?? 0);
    this.legend.replaceChildren(...legend(columns));
    const one = run.steps[step];
    const looked = this.looked;
    const winner = run.winner()[step];
    const children = view.everyone ? one.parent.map((_, child) => child) : [...new Set(one.survivor)];
    this.list.replaceChildren(
      ...children.map((child) =>
        particleRow(run, step, child, {
          domain: view.domain,
          ghosts: view.ghosts,
          focused: looked.step === step && looked.child === child,
          wins: child === winner,
        })),
    );
  }

  // Focus and what follows from it, without rebuilding the texts.
  mark() {
    const looked = this.looked;
    if (!looked) return;
    for (const row of this.list.children) {
      const focused = looked.step === this.step && Number(row.dataset.child) === looked.child;
      row.classList.toggle("focused", focused);
      row.tabIndex = focused ? 0 : -1;
    }
    pointGenealogy(this.picture, this.run, this.layout, this.step, looked);
    this.detail.replaceChildren(...inspector(this.run, looked, this.view.domain));
  }

  point(place) {
    const same = JSON.stringify(place) === JSON.stringify(this.hover);
    this.hover = place;
    if (!same && this.run.steps.length) this.mark();
  }

  over(event) {
    const row = event.target.closest("[data-child]");
    this.point(row ? { step: this.step, child: Number(row.dataset.child) } : null);
  }

  pick(event) {
    const row = event.target.closest("[data-child]");
    if (row) this.focus = { step: this.step, child: Number(row.dataset.child) };
    this.mark();
  }

  place(event) {
    const box = this.tree.getBoundingClientRect();
    return this.layout?.nearest(event.clientX - box.left + this.tree.scrollLeft, event.clientY - box.top) ?? null;
  }

  overTree(event) {
    this.point(this.place(event));
  }

  pickTree(event) {
    const place = this.place(event);
    if (!place) return;
    this.focus = place;
    this.view.seek(place.step);
  }

  pickCurve(event) {
    const figure = event.target.closest("figure");
    if (!figure) return;
    const box = figure.querySelector("svg").getBoundingClientRect();
    this.view.seek(figure.stepAt(event.clientX - box.left));
  }

  // The next particle up or down, for the arrow keys.
  move(by) {
    const rows = [...this.list.children];
    const at = rows.findIndex((row) => row.classList.contains("focused"));
    const row = rows[Math.min(Math.max(at + by, 0), rows.length - 1)];
    if (!row) return;
    this.hover = null;
    this.focus = { step: this.step, child: Number(row.dataset.child) };
    this.mark();
    row.focus({ preventScroll: false });
  }

  save() {
    const address = URL.createObjectURL(new Blob([this.run.text()], { type: "application/x-ndjson" }));
    const link = el("a", { href: address, download: this.run.fileName() });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(address), 10000);
  }
}

function legend(columns) {
  const sample = (kind, text = "") => el("span", { class: columns ? `cell ${kind}` : kind }, text);
  if (!columns) return [sample("t new", "new"), sample("m g", "look-ahead"), sample("m"), "hidden", sample("m back"), "taken back"];
  return [sample("clue", "5"), "clue", sample("t new", "5"), "new", sample("t", "5"), "accepted", sample("m", "5"), "look-ahead", sample("t wrong", "5"), "occurs twice", sample("m back"), "taken back"];
}

function card(name, title, legend, ...content) {
  return el("section", { class: `card ${name}` }, el("h3", {}, title, legend), ...content);
}
