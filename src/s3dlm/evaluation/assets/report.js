// The problem browser: filters and pages through the data embedded in this page. No network.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const box = document.getElementById("problem-list");
  const pick = (id) => document.getElementById(id);
  const PAGE = 10;
  let page = 0;

  const element = (name, text, className) => {
    const node = document.createElement(name);
    if (text !== undefined) node.textContent = text;
    if (className) node.className = className;
    return node;
  };
  const share = (row) => row.grades.reduce((a, b) => a + b, 0) / row.grades.length;
  const find = (problem, label) => problem.rows.find((row) => row.label === label);

  const outcomes = {
    all: () => true,
    won: (p, a, b) => share(a) > share(b),
    lost: (p, a, b) => share(a) < share(b),
    solved: (p) => p.rows.every((row) => share(row) === 1),
    failed: (p) => p.rows.every((row) => share(row) === 0),
  };

  const searchable = (problem) => {
    problem.words ??= [problem.question, problem.id, problem.gold, ...problem.rows.flatMap((row) => [row.answer, row.text])].join(" ").toLowerCase();
    return problem.words;
  };

  const matches = (problem) => {
    const wanted = pick("task").value;
    if (wanted && problem.task !== wanted) return false;
    const words = pick("words").value.trim().toLowerCase();
    if (words && !searchable(problem).includes(words)) return false;
    const kind = pick("outcome").value;
    const a = find(problem, pick("first").value), b = find(problem, pick("second").value);
    if ((kind === "won" || kind === "lost") && !(a && b)) return false;
    return outcomes[kind](problem, a, b);
  };

  const grades = (row) => {
    const cell = element("td", undefined, "grades");
    row.grades.forEach((grade, seed) => {
      const full = grade === 1, none = grade === 0;
      const sign = element("span", full ? "✓" : none ? "✗" : grade.toFixed(2), full ? "right" : "wrong");
      sign.title = "seed " + data.seeds[seed] + ": " + (full ? "correct" : none ? "wrong" : "partly correct");
      cell.append(sign, " ");
    });
    return cell;
  };

  const table = (headings, rows) => {
    const node = element("table", undefined, "inner");
    const head = element("tr");
    head.append(...headings.map((text) => element("th", text)));
    node.append(head, ...rows.map((cells) => {
      const line = element("tr");
      line.append(...cells.map((text) => element("td", text)));
      return line;
    }));
    return node;
  };
  const number = (value) => (value === null ? "–" : value.toFixed(3));

  const survivors = (row) => table(["survivors", "answer", "score", "text"],
    row.survivors.map(([count, answer, score, text]) => [count + " ×", answer ?? "no answer", number(score), text]));

  const draw = (problem) => {
    const card = element("article", undefined, "problem");
    card.append(element("h3", data.titles[problem.task] + " · " + problem.id));
    card.append(element("p", problem.question.trim(), "question"));
    card.append(element("p", "Gold answer: " + problem.gold, "soft"));
    const table = element("table");
    for (const row of problem.rows) {
      const line = element("tr");
      line.append(element("td", row.label, "name"), grades(row), element("td", row.answer ?? "no answer", "answer"));
      const more = element("td");
      const details = element("details");
      details.append(element("summary", row.trace ? "output, survivors, trace" : "output, survivors"), element("pre", row.text || "(empty)"));
      details.append(survivors(row));
      if (row.p_correct !== null) {
        details.append(element("p", "Probability of being right: " + row.p_correct.toFixed(2), "soft"));
      }
      if (row.trace) {
        const link = element("a", "every step of this search (a file beside this report)");
        link.href = row.trace;
        details.append(link);
      }
      more.append(details);
      line.append(more);
      table.append(line);
    }
    card.append(table);
    return card;
  };

  const show = () => {
    const found = data.problems.filter(matches);
    const pages = Math.max(1, Math.ceil(found.length / PAGE));
    page = Math.min(Math.max(page, 0), pages - 1);
    pick("found").textContent = found.length + " of " + data.problems.length + " problems, page " +
      (page + 1) + " of " + pages;
    pick("back").disabled = page === 0;
    pick("next").disabled = page === pages - 1;
    box.replaceChildren(...found.slice(page * PAGE, (page + 1) * PAGE).map(draw));
  };

  for (const id of ["task", "outcome", "first", "second", "words"]) {
    pick(id).addEventListener("input", () => { page = 0; show(); });
  }
  pick("back").addEventListener("click", () => { page -= 1; show(); });
  pick("next").addEventListener("click", () => { page += 1; show(); });
  show();
})();
