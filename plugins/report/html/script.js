"use strict";
// Lists the samples that the page carries, searches, filters and sorts them, and shows one in detail.
// plugins/report/page_samples.py describes a row; all text in it is inserted as text, never as markup.
(() => {
  const PAGE = 50;
  const rows = JSON.parse(document.getElementById("data").textContent).rows;
  const form = document.getElementById("filters");
  const body = document.getElementById("rows");
  const more = document.getElementById("more");
  let matching = [];
  let shown = 0;

  const make = (tag, style, text) => {
    const element = document.createElement(tag);
    if (style) element.className = style;
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const shortLength = (length) => !length ? "any" :
    length % 1048576 === 0 ? `${length / 1048576}M` : length % 1024 === 0 ? `${length / 1024}K` : `${length}`;
  const result = (row) => row.failure || (row.score < 100 ? "below 100" : "right");
  const distinct = (values) => [...new Set(values)];

  // form.elements.length is the number of fields, so the field called "length" needs this function.
  const field = (name) => form.elements.namedItem(name);
  const addOption = (select, value, text) => {
    const element = make("option", "", text);
    element.value = value;
    select.append(element);
  };
  distinct(rows.map((row) => row.task)).forEach((task) => addOption(field("task"), task, task));
  distinct(rows.map((row) => row.length)).sort((a, b) => a - b)
    .forEach((length) => addOption(field("length"), length, shortLength(length)));
  distinct(rows.map((row) => row.failure).filter(Boolean)).sort()
    .forEach((kind) => addOption(field("failure"), kind, kind));

  // All texts of a row in lower case, made when the first search needs them.
  const texts = new Map();
  const textOf = (row) => {
    if (!texts.has(row)) {
      const { question, head, before, needle, after, tail } = row.excerpt || {};
      const flip = row.flip || {};
      texts.set(row, [row.task, row.failure, ...row.expected, row.answer, row.ending, flip.answer, flip.ending, question,
        head, before, needle, after, tail].filter(Boolean).join("\n").toLowerCase());
    }
    return texts.get(row);
  };
  const ORDERS = {
    score: (a, b) => (a.score ?? -1) - (b.score ?? -1),
    length: (a, b) => b.length - a.length,
    depth: (a, b) => (a.depth ?? 2) - (b.depth ?? 2),
    index: (a, b) => a.index - b.index,
  };
  const matches = (row, filters, words) => {
    if (!words.every((word) => textOf(row).includes(word))) return false;
    if (filters.task && row.task !== filters.task) return false;
    if (filters.length && row.length !== Number(filters.length)) return false;
    if (filters.failure === "*" && row.score >= 100) return false;
    if (filters.failure === "-" && row.score < 100) return false;
    if (filters.failure && !"*-".includes(filters.failure) && row.failure !== filters.failure) return false;
    if (!filters.flip) return true;
    if (!row.flip) return false;
    return filters.flip === "any" || (filters.flip === "worse") === (row.score < row.flip.score);
  };

  // Shows an answer with its references marked: as whole words, or within words if no whole word matches.
  const markedAnswer = (answer, references) => {
    const box = make("div", "text");
    box.dir = "auto";
    const addGap = (count) => box.append(make("span", "gap", ` … ${count.toLocaleString("en")} characters … `));
    const parts = answer.omitted ? [answer.answer, answer.ending] : [answer.answer + (answer.ending || "")];
    // Longer references first, so that none is marked as a part of itself.
    const alternatives = references.filter(Boolean).sort((a, b) => b.length - a.length)
      .map((reference) => reference.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&")).join("|");
    const words = new RegExp(`(?<![\\p{L}\\p{N}])(${alternatives})(?![\\p{L}\\p{N}])`, "giu");
    const pattern = parts.some((part) => part.search(words) >= 0) ? words : new RegExp(`(${alternatives})`, "giu");
    parts.forEach((part, index) => {
      if (index) addGap(answer.omitted);
      if (!alternatives) box.append(part);
      // Splitting at a group puts the matches at the odd places.
      else part.split(pattern).forEach((text, place) => box.append(place % 2 ? make("mark", "", text) : text));
    });
    if (!answer.answer) box.append(make("span", "gap", "(empty)"));
    return box;
  };
  const addSection = (parent, title, ...children) => {
    const section = make("div");
    section.append(make("h4", "", title), ...children);
    parent.append(section);
  };
  const contextExcerpt = (excerpt) => {
    const box = make("div", "text");
    box.dir = "auto";
    const gap = () => make("span", "gap break", "…");
    box.append((excerpt.head || "").trimEnd());
    if (excerpt.needle) {
      box.append(gap(), (excerpt.before || "").trimStart(), make("mark", "", excerpt.needle),
        (excerpt.after || "").trimEnd());
    }
    if (excerpt.tail) box.append(gap(), excerpt.tail.trim());
    return box;
  };
  const expectedReferences = (row) => {
    const box = make("p");
    row.expected.forEach((reference, index) => {
      const credit = row.credits[index];
      const [style, sign] = credit < 0 ? ["", ""] : credit >= 1 ? ["hit", "✓ "] : ["miss", "✕ "];
      box.append(make("span", `chip ${style}`, `${sign}${reference}`));
    });
    if (row.more_references) box.append(make("span", "gap", `and ${row.more_references} more`));
    return box;
  };

  const detail = (row) => {
    const box = make("div", "sample");
    const excerpt = row.excerpt || {};
    if (excerpt.question) {
      const question = make("div", "text", excerpt.question);
      question.dir = "auto";
      addSection(box, "Question", question);
    }
    addSection(box, "Expected", expectedReferences(row));
    const answers = make("div", "answers");
    addSection(answers, `Answer, ${row.score ?? "no score"} (${result(row)})`, markedAnswer(row, row.expected));
    if (row.flip) {
      const baseline = row.flip.answer === undefined
        ? make("p", "gap", "The journal holds this answer.") : markedAnswer(row.flip, row.expected);
      addSection(answers, `Baseline, ${row.flip.score}${row.flip.failure ? ` (${row.flip.failure})` : ""}`, baseline);
    }
    box.append(answers);
    if (row.depths) addSection(box, "Depths of the needles", depthBar(row.depths, row.credits));
    else if (row.depth !== undefined) addSection(box, "Depth of the needle", depthBar([row.depth], row.credits));
    if (excerpt.head) addSection(box, "Context: start, needle and end", contextExcerpt(excerpt));
    if (!excerpt.question && !excerpt.head) box.append(make("p", "gap", "The question and context were not stored."));
    return box;
  };
  const depthBar = (depths, credits) => {
    const isPaired = depths.length === credits.length;
    const missed = depths.map((_, index) => isPaired && credits[index] >= 0 && credits[index] < 1);
    const texts = depths.map((depth, index) =>
      `${(100 * depth).toFixed(1)} %${depths.length > 1 && missed[index] ? " (missed)" : ""}`);
    const box = make("p", "", `${texts.join(", ")} of the context`);
    const drawing = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    drawing.setAttribute("viewBox", "0 0 300 10");
    drawing.setAttribute("preserveAspectRatio", "none");
    drawing.setAttribute("aria-hidden", "true");
    drawing.setAttribute("class", "depthbar");
    const ticks = depths.map((depth, index) =>
      [missed[index] ? "missed" : "fill", Math.min(296, Math.max(0, 300 * depth - 2)), 4]);
    for (const [style, x, width] of [["track", 0, 300], ...ticks]) {
      const bar = document.createElementNS("http://www.w3.org/2000/svg", "rect");
      bar.setAttribute("class", style);
      bar.setAttribute("x", x);
      bar.setAttribute("width", width);
      bar.setAttribute("height", 10);
      drawing.append(bar);
    }
    box.append(drawing);
    return box;
  };

  const tableRow = (row) => {
    const element = make("tr");
    const button = make("button", "", `${row.task} ${shortLength(row.length)} #${row.index}`);
    button.type = "button";
    button.setAttribute("aria-expanded", "false");
    const head = make("th");
    head.scope = "row";
    head.append(button);
    const verdict = make("td", "", result(row));
    if (row.flip) verdict.append(make("span", "flip", row.score < row.flip.score ? "▼ was better" : "▲ was worse"));
    const answer = make("td", "wide cut", row.answer || "(empty)");
    answer.dir = "auto";
    element.append(head, make("td", "", row.score == null ? "-" : row.score.toFixed(1)), verdict,
      make("td", "wide", row.depth === undefined ? "" : row.depth.toFixed(2)),
      make("td", "wide cut", row.expected.join(", ")), answer);
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

  const showMore = () => {
    body.append(...matching.slice(shown, shown + PAGE).map(tableRow));
    shown = Math.min(matching.length, shown + PAGE);
    more.hidden = shown >= matching.length;
    document.getElementById("count").textContent =
      `${matching.length.toLocaleString("en")} samples${shown < matching.length ? `, the first ${shown} listed` : ""}`;
  };
  const filter = () => {
    const filters = Object.fromEntries(new FormData(form));
    const words = filters.words.toLowerCase().split(/\s+/).filter(Boolean);
    matching = rows.filter((row) => matches(row, filters, words));
    if (filters.order) matching.sort(ORDERS[filters.order]);
    shown = 0;
    body.replaceChildren();
    showMore();
  };

  form.addEventListener("change", filter);
  field("words").addEventListener("input", filter);
  form.addEventListener("submit", (event) => event.preventDefault());
  // The event comes before the fields are cleared.
  form.addEventListener("reset", () => setTimeout(filter));
  more.addEventListener("click", showMore);
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
  addEventListener("beforeprint", () =>
    document.querySelectorAll("details").forEach((details) => { details.open = true; }));
  filter();
})();
