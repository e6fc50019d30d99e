// A particle whose tokens are the cells of a grid: clues in ink on stone, accepted digits, what the
// look-ahead would write, cells whose digit was taken back, and in colour every digit that occurs twice.
import { el } from "./dom.js";

// Cells that hold what another cell of their row, column or box holds; clues are never doubted.
export function doubtful(cells, given, columns) {
  const box = Math.round(Math.sqrt(columns));
  const units = [
    (i) => Math.floor(i / columns),
    (i) => i % columns,
    (i) => Math.floor(i / columns / box) * box + Math.floor((i % columns) / box),
  ];
  const found = new Set();
  for (const unit of units) {
    const holders = new Map();
    cells.forEach((token, i) => {
      if (token < 0) return;
      const key = `${unit(i)} ${token}`;
      holders.set(key, [...(holders.get(key) ?? []), i]);
    });
    for (const same of holders.values()) if (same.length > 1) same.forEach((i) => found.add(i));
  }
  return new Set([...found].filter((i) => !(given?.[i] >= 0)));
}

export function gridCells(run, step, child, ghosts) {
  const one = run.steps[step];
  const { columns } = run.header;
  const tokens = one.tokens[child];
  const clean = one.clean[child];
  const given = run.given(tokens);
  const before = run.before(step, child);
  const wrong = doubtful(tokens, given, columns);
  const feared = doubtful(clean, given, columns);
  const percent = (i) => (one.percent?.[child]?.[i] === undefined ? "" : ` with probability ${one.percent[child][i]} %`);
  const box = Math.round(Math.sqrt(columns));
  const cells = tokens.map((token, i) => {
    const classes = ["cell"];
    let title = "";
    let text = "";
    if (given?.[i] >= 0) {
      classes.push("clue");
      title = "a clue";
      text = run.piece(token);
    } else if (token >= 0) {
      const fresh = before ? before[i] !== token : true; // a round may empty and fill a cell in one step
      classes.push(fresh ? "t new" : "t", wrong.has(i) ? "wrong" : "");
      title = `accepted${percent(i)}${wrong.has(i) ? "; occurs twice" : ""}`;
      text = run.piece(token);
    } else {
      const back = before?.[i] >= 0;
      classes.push("m", back ? "back" : "", ghosts && feared.has(i) ? "wrong" : "");
      text = ghosts && clean[i] >= 0 ? run.piece(clean[i]) : "";
      title = `${back ? `taken back: it was ${run.piece(before[i])}; ` : ""}${text ? `predicted${percent(i)}` : "hidden"}`;
    }
    if (i % columns % box === 0 && i % columns) classes.push("left");
    if (Math.floor(i / columns) % box === 0 && i >= columns) classes.push("top");
    return el("span", { class: classes.filter(Boolean).join(" "), title }, text);
  });
  return el("p", { class: "grid", "--columns": String(columns) }, ...cells);
}
