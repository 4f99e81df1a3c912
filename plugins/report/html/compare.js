"use strict";
// Compares two checkpoints of a watch, case by case; ci/watch/pages.py describes the data.
(() => {
  const { checkpoints, noise, options, chosen } = JSON.parse(document.getElementById("data").textContent);
  const form = document.getElementById("filters");
  const selects = ["before", "after"].map((name) => form.elements.namedItem(name));

  const cell = (tag, text, style) => {
    const element = document.createElement(tag);
    element.textContent = text;
    if (style) element.className = style;
    return element;
  };
  const known = (cases, name) => (name in cases ? cases[name] : null);
  const score = (value) => (value === null ? "-" : `${value[0].toFixed(1)} (${value[1]})`);

  const show = () => {
    const [before, after] = selects.map((select) => checkpoints[Number(select.value)]);
    const names = [...new Set([...Object.keys(before.cases), ...Object.keys(after.cases)])];
    const rows = names.map((name) => {
      const [one, other] = [known(before.cases, name), known(after.cases, name)];
      const change = one === null || other === null ? null : other[0] - one[0];
      // Changes by the noise of their case come first; where it is not known, one point stands for it.
      const size = change === null ? -1 : Math.abs(change) / Math.max(noise[name] ?? 1, 0.1);
      return { name, one, other, change, size };
    });
    rows.sort((a, b) => b.size - a.size);
    document.getElementById("before").textContent = `step ${before.step}`;
    document.getElementById("after").textContent = `step ${after.step}`;
    document.getElementById("rows").replaceChildren(...rows.map(({ name, one, other, change }) => {
      const row = document.createElement("tr");
      // The whole id of a case would push the noise out of a narrow window.
      const heading = cell("th", name.replace(/^.*\[(.*)\]$/, "$1"));
      heading.title = name;
      heading.scope = "row";
      const isLarge = change !== null && Math.abs(change) > 2 * Math.max(noise[name] ?? 1, 0.1);
      const style = !isLarge ? "" : change < 0 ? "w3" : "b3";
      const shown = change === null ? "-" : `${change < 0 ? "-" : "+"}${Math.abs(change).toFixed(1)}`;
      const spread = noise[name] === null ? "-" : `±${noise[name].toFixed(1)}`;
      row.append(heading, cell("td", score(one)), cell("td", score(other)), cell("td", shown, style), cell("td", spread));
      return row;
    }));
    const larger = rows.filter(({ change }) => change !== null);
    const mean = larger.reduce((sum, { change }) => sum + change, 0) / Math.max(1, larger.length);
    document.getElementById("count").textContent = larger.length
      ? `${larger.length} case${larger.length === 1 ? "" : "s"}, mean change ${mean < 0 ? "-" : "+"}${Math.abs(mean).toFixed(1)} points; numbers of samples in brackets`
      : "no case in common";
    document.getElementById("command").textContent =
      `longctx run ${options}${options ? " " : ""}--model ${after.checkpoint} --baseline ${before.report}`;
  };

  selects.forEach((select, place) => {
    checkpoints.forEach((checkpoint, index) => {
      const option = cell("option", `step ${checkpoint.step} (${checkpoint.verdict})`);
      option.value = index;
      select.append(option);
    });
    select.value = chosen[place];
    select.addEventListener("change", show);
  });
  // A link in the row of a checkpoint compares it, as "after", with the one that is chosen as "before".
  const choose = () => {
    const step = location.hash.startsWith("#compare-") ? Number(location.hash.slice(9)) : NaN;
    const place = checkpoints.findIndex((checkpoint) => checkpoint.step === step);
    if (place < 0) return;
    selects[1].value = place;
    show();
    document.getElementById("compare").scrollIntoView();
  };
  window.addEventListener("hashchange", choose);
  show();
  choose();
})();
