// What to ask and how to search: examples, prompt, task, method, a second method to compare.
import { el } from "./dom.js";

const NUMBERS = [
  ["particles", "Particles N", 1, 1],
  ["branching", "Branching b", 1, 1],
  ["lam", "Tilt λ", 0, 0.1],
  ["temperature", "Temperature", 0, 0.1],
  ["steps", "Steps", 1, 1],
  ["gen_length", "Length", 1, 1],
  ["block_length", "Block", 1, 1],
  ["seed", "Seed", 0, 1],
];

export class Form {
  constructor(options, ask, stop) {
    this.options = options;
    this.prompt = el("textarea", { id: "prompt", rows: "2", spellcheck: "false", placeholder: "Type a question, or pick an example", "aria-label": "Prompt", required: true });
    this.task = select("Task", [["", "none"], ...options.tasks.map((name) => [name, name])], "");
    this.method = select("Method", Object.keys(options.methods).map((name) => [name, name]), options.defaults.method);
    this.against = select("Compare with", [["", "nothing"], ...Object.keys(options.methods).map((name) => [name, name])], "");
    this.numbers = NUMBERS.map(([name, label, least, step]) => number(name, label, options.defaults[name], least, step));
    this.policy = select("Reveal first", options.policies.map((name) => [name, name]), options.defaults.policy);
    this.problem = el("p", { class: "failure", role: "alert", hidden: true });
    this.go = el("button", { type: "submit", class: "go" }, "Search");
    this.halt = el("button", { type: "button", class: "quiet", hidden: true, onclick: stop }, "Stop");
    this.node = el(
      "form",
      { class: "ask", onsubmit: (event) => { event.preventDefault(); ask(); } },
      el("div", { class: "examples", role: "group", "aria-label": "Examples" }, ...options.examples.map((one) => this.example(one))),
      el(
        "div",
        { class: "line" },
        this.prompt,
        el("div", { class: "settings" }, this.task.node, this.method.node, this.against.node),
        el("div", { class: "buttons" }, this.go, this.halt),
      ),
      el("details", {}, el("summary", {}, "Settings"), el("div", { class: "settings" }, ...this.numbers.map((one) => one.node), this.policy.node)),
      this.problem,
    );
    this.prompt.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey) {
        event.preventDefault();
        this.node.requestSubmit();
      }
    });
  }

  example({ task, prompt }) {
    const short = prompt.replace(/\s+/g, " ");
    return el(
      "button",
      { type: "button", class: "example", title: prompt, onclick: () => { this.prompt.value = prompt; this.task.value = task; this.node.requestSubmit(); } },
      el("b", {}, task),
      short.length > 44 ? `${short.slice(0, 42)}…` : short,
    );
  }

  // One body for each method that is to run.
  bodies() {
    const own = Object.fromEntries(this.numbers.filter((one) => one.input.value !== "").map((one) => [one.name, Number(one.input.value)]));
    const base = { prompt: this.prompt.value, ...own, policy: this.policy.value, ...(this.task.value ? { task: this.task.value } : {}) };
    return [this.method.value, this.against.value].filter(Boolean).map((method) => ({ ...base, method }));
  }

  busy(is) {
    this.halt.hidden = !is;
  }

  complain(message) {
    this.problem.textContent = message ?? "";
    this.problem.hidden = !message;
  }
}

function select(label, choices, value) {
  const input = el("select", { "aria-label": label }, ...choices.map(([name, text]) => el("option", { value: name, selected: name === value }, text)));
  return {
    node: el("label", {}, el("span", {}, label), input),
    get value() { return input.value; },
    set value(name) { input.value = name; },
  };
}

function number(name, label, value, least, step) {
  const input = el("input", { type: "number", value: value ?? "", min: least, step: step < 1 ? "any" : step, inputmode: "decimal", name, "aria-label": label });
  return { name, input, node: el("label", {}, el("span", {}, label), input) };
}
