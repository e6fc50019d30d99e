// Time: back and forth, playing at a steady pace that waits for a search still under way.
import { el, svg } from "./dom.js";

// Drawn, since not every machine has these signs in its fonts.
const SIGNS = {
  play: "M7 4.5v15l12.5-7.5z",
  pause: "M7 5h3.6v14H7zM13.4 5H17v14h-3.6z",
  back: "M16.5 5v14L6 12z",
  forth: "M7.5 5v14L18 12z",
  first: "M6 5h2.4v14H6zM19 5v14L9 12z",
  last: "M15.6 5H18v14h-2.4zM5 5v14l10-7z",
};

export class Transport {
  // `view` has step, total, arrived (steps there are), seek(step).
  constructor(view, toggles) {
    this.view = view;
    this.playing = false;
    this.pace = 8;
    this.play = button("play", "Play", () => this.toggle());
    this.slider = el("input", { type: "range", min: 0, max: 0, value: 0, step: 1, "aria-label": "Step", oninput: () => { this.pause(); view.seek(Number(this.slider.value)); } });
    this.label = el("output", { class: "clock" });
    this.speed = el("select", { "aria-label": "Steps a second", onchange: () => this.setPace(Number(this.speed.value)) },
      ...[2, 4, 8, 16, 32].map((pace) => el("option", { value: pace, selected: pace === this.pace }, `${pace}/s`)));
    this.nodes = [
      el("div", { class: "keys" },
        button("first", "First step", () => this.go(0)),
        button("back", "One step back", () => this.by(-1)),
        this.play,
        button("forth", "One step forward", () => this.by(1)),
        button("last", "Last step", () => this.go(view.arrived - 1))),
      this.slider,
      this.label,
      this.speed,
      el("div", { class: "toggles" }, ...toggles),
      el("span", { class: "hint" }, el("kbd", {}, "←"), el("kbd", {}, "→"), " step ", el("kbd", {}, "space"), " play ", el("kbd", {}, "↑"), el("kbd", {}, "↓"), " particle"),
    ];
  }

  toggle() {
    if (this.playing) this.pause();
    else this.start();
  }

  start() {
    if (this.view.step >= (this.view.busy ? this.view.total : this.view.arrived) - 1) this.view.seek(0);
    this.playing = true;
    this.restart();
    this.show();
  }

  restart() {
    clearInterval(this.timer);
    if (this.playing) this.timer = setInterval(() => this.tick(), 1000 / this.pace);
  }

  setPace(pace) {
    this.pace = pace;
    this.speed.value = pace;
    this.restart();
  }

  tick() {
    if (this.view.step + 1 < this.view.arrived) this.view.seek(this.view.step + 1);
    else if (!this.view.busy) this.pause();
  }

  pause() {
    this.playing = false;
    clearInterval(this.timer);
    this.show();
  }

  go(step) {
    this.pause();
    this.view.seek(step);
  }

  by(steps) {
    this.go(this.view.step + steps);
  }

  show() {
    const { step, total, arrived } = this.view;
    this.slider.max = Math.max(0, total - 1);
    this.slider.value = step;
    this.slider.style.setProperty("--done", `${total > 1 ? 100 * step / (total - 1) : 0}%`);
    this.slider.style.setProperty("--there", `${total > 1 ? 100 * (arrived - 1) / (total - 1) : 0}%`);
    this.label.textContent = `${Math.min(step + 1, total)} / ${total}`;
    this.play.replaceChildren(icon(this.playing ? "pause" : "play"));
    this.play.setAttribute("aria-label", this.playing ? "Pause" : "Play");
  }
}

function button(name, label, act) {
  return el("button", { type: "button", class: `key ${name}`, "aria-label": label, title: label, onclick: act }, icon(name));
}

function icon(name) {
  return svg("svg", { viewBox: "0 0 24 24", width: 18, height: 18, "aria-hidden": "true" }, svg("path", { d: SIGNS[name] }));
}
