"use strict";
(() => {
  const PAGE = 50;
  const rows = JSON.parse(document.getElementById("data").textContent).rows;
  const form = document.getElementById("filters");
  const body = document.getElementById("rows");
  const more = document.getElementById("more");
  let found = [];
  let shown = 0;

  const make = (tag, style, text) => {
    const element = document.createElement(tag);
    if (style) element.className = style;
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const short = (length) =>
    length % 1048576 === 0 ? `${length / 1048576}M` : length % 1024 === 0 ? `${length / 1024}K` : `${length}`;
  const result = (row) => row.failure || (row.score < 100 ? "below 100" : "right");
  const distinct = (values) => [...new Set(values)];

  // A field may be called "length", which is a property of the list of fields itself.
  const field = (name) => form.elements.namedItem(name);
  const option = (select, value, text) => {
    const element = make("option", "", text);
    element.value = value;
    select.append(element);
  };
  distinct(rows.map((row) => row.task)).forEach((task) => option(field("task"), task, task));
  distinct(rows.map((row) => row.length)).sort((a, b) => a - b)
    .forEach((length) => option(field("length"), length, short(length)));
  distinct(rows.map((row) => row.failure).filter(Boolean)).sort()
    .forEach((kind) => option(field("failure"), kind, kind));

  const fits = (row) => {
    const wanted = Object.fromEntries(new FormData(form));
    if (wanted.task && row.task !== wanted.task) return false;
    if (wanted.length && row.length !== Number(wanted.length)) return false;
    if (wanted.failure === "*" && row.score >= 100) return false;
    if (wanted.failure === "-" && row.score < 100) return false;
    if (wanted.failure && !"*-".includes(wanted.failure) && row.failure !== wanted.failure) return false;
    if (!wanted.flip) return true;
    if (!row.flip) return false;
    return wanted.flip === "any" || (wanted.flip === "worse") === (row.score < row.flip.score);
  };

  // An answer, whole or as its beginning and one more piece, with the references marked: where they stand as words,
  // or else within words.
  const marked = (answer, needles) => {
    const box = make("div", "said");
    box.dir = "auto";
    const gap = (count) => box.append(make("span", "gap", ` … ${count.toLocaleString("en")} characters … `));
    const pieces = answer.more ? [answer.got, answer.end] : [answer.got + (answer.end || "")];
    const wanted = needles.filter(Boolean).sort((a, b) => b.length - a.length)
      .map((needle) => needle.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&")).join("|");
    const words = new RegExp(`(?<![\\p{L}\\p{N}])(${wanted})(?![\\p{L}\\p{N}])`, "giu");
    const pattern = pieces.some((piece) => piece.search(words) >= 0) ? words : new RegExp(`(${wanted})`, "giu");
    pieces.forEach((piece, at) => {
      if (at) gap(answer.more);
      if (!wanted) box.append(piece);
      else piece.split(pattern).forEach((part, place) => box.append(place % 2 ? make("mark", "", part) : part));
    });
    if (answer.rest) gap(answer.rest);
    if (!answer.got) box.append(make("span", "gap", "(nothing)"));
    return box;
  };
  const headed = (parent, title, ...children) => {
    const section = make("div");
    section.append(make("h4", "", title), ...children);
    parent.append(section);
    return section;
  };
  const context = (found) => {
    const box = make("div", "said");
    box.dir = "auto";
    const gap = () => make("span", "gap break", "…");
    box.append((found.head || "").trimEnd());
    if (found.needle) {
      box.append(gap(), (found.before || "").trimStart(), make("mark", "", found.needle), (found.after || "").trimEnd());
    }
    if (found.tail) box.append(gap(), found.tail.trim());
    return box;
  };

  const detail = (row) => {
    const box = make("div", "sample");
    const excerpt = row.excerpt || {};
    if (excerpt.question) {
      const asked = make("div", "said", excerpt.question);
      asked.dir = "auto";
      headed(box, "Question", asked);
    }
    const expected = make("p");
    row.expected.forEach((text, at) => {
      const credit = row.found[at];
      const chip = make("span", `chip ${credit < 0 ? "" : credit >= 1 ? "hit" : "miss"}`);
      chip.textContent = `${credit < 0 ? "" : credit >= 1 ? "✓ " : "✕ "}${text}`;
      expected.append(chip);
    });
    if (row.others) expected.append(make("span", "gap", `and ${row.others} more`));
    headed(box, "Expected", expected);
    const sides = make("div", "sides");
    headed(sides, `Answer, ${row.score} (${result(row)})`, marked(row, row.expected));
    if (row.flip) {
      const other = row.flip.got === undefined
        ? make("p", "gap", "its answer is in the journal") : marked(row.flip, row.expected);
      headed(sides, `Baseline, ${row.flip.score}${row.flip.failure ? ` (${row.flip.failure})` : ""}`, other);
    }
    box.append(sides);
    if (row.depths) headed(box, "Places of the needles", places(row.depths, row.found));
    else if (row.depth !== undefined) headed(box, "Place of the needle", places([row.depth], row.found));
    if (excerpt.head) headed(box, "Context, both ends and around the needle", context(excerpt));
    return box;
  };
  const places = (shares, found) => {
    const paired = shares.length === found.length;
    const missed = shares.map((_, at) => paired && found[at] >= 0 && found[at] < 1);
    const said = shares.map((share, at) =>
      `${(100 * share).toFixed(1)} %${shares.length > 1 && missed[at] ? " (missed)" : ""}`);
    const box = make("p", "", `${said.join(", ")} of the context`);
    const drawing = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    drawing.setAttribute("viewBox", "0 0 300 10");
    drawing.setAttribute("preserveAspectRatio", "none");
    drawing.setAttribute("aria-hidden", "true");
    const ticks = shares.map((share, at) =>
      [missed[at] ? "missed" : "fill", Math.min(296, Math.max(0, 300 * share - 2)), 4]);
    for (const [style, x, width] of [["track", 0, 300], ...ticks]) {
      const part = document.createElementNS("http://www.w3.org/2000/svg", "rect");
      part.setAttribute("class", style);
      part.setAttribute("x", x);
      part.setAttribute("width", width);
      part.setAttribute("height", 10);
      drawing.append(part);
    }
    drawing.setAttribute("class", "depthbar");
    box.append(drawing);
    return box;
  };

  const line = (row) => {
    const element = make("tr");
    const button = make("button", "", `${row.task} ${short(row.length)} #${row.index}`);
    button.type = "button";
    button.setAttribute("aria-expanded", "false");
    const head = make("th");
    head.scope = "row";
    head.append(button);
    const verdict = make("td", "", result(row));
    if (row.flip) verdict.append(make("span", "flip", row.score < row.flip.score ? "▼ was better" : "▲ was worse"));
    const got = make("td", "wide cut", row.got || "(nothing)");
    got.dir = "auto";
    element.append(head, make("td", "", row.score.toFixed(1)), verdict,
      make("td", "wide", row.depth === undefined ? "" : row.depth.toFixed(2)),
      make("td", "wide cut", row.expected.join(", ")), got);
    button.addEventListener("click", () => {
      const open = button.getAttribute("aria-expanded") === "true";
      button.setAttribute("aria-expanded", String(!open));
      if (open) element.nextSibling.remove();
      else {
        const cell = make("td");
        cell.colSpan = 6;
        cell.append(detail(row));
        const below = make("tr", "detail");
        below.append(cell);
        element.after(below);
      }
    });
    return element;
  };

  const grow = () => {
    body.append(...found.slice(shown, shown + PAGE).map(line));
    shown = Math.min(found.length, shown + PAGE);
    more.hidden = shown >= found.length;
    document.getElementById("count").textContent =
      `${found.length.toLocaleString("en")} samples${shown < found.length ? `, the first ${shown} listed` : ""}`;
  };
  const filter = () => {
    found = rows.filter(fits);
    shown = 0;
    body.replaceChildren();
    grow();
  };

  form.addEventListener("change", filter);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(filter));
  more.addEventListener("click", grow);
  body.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    const buttons = [...body.querySelectorAll("button")];
    const next = buttons[buttons.indexOf(event.target) + (event.key === "ArrowDown" ? 1 : -1)];
    if (next) {
      event.preventDefault();
      next.focus();
    }
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-task], a[data-flip]");
    if (!link) return;
    form.reset();
    for (const name of ["task", "length", "flip"]) {
      if (link.dataset[name] && field(name)) field(name).value = link.dataset[name];
    }
    setTimeout(filter);
  });
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((each) => { each.open = true; }));
  filter();
})();
