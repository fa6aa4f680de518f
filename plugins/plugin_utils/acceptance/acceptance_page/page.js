// Copyright (c) 2026, the baremetal.inference authors; SPDX-License-Identifier: GPL-3.0-or-later
(() => {
  const data = JSON.parse($("data").textContent);
  const SVG = "http://www.w3.org/2000/svg";

  function drawn(name, attributes) {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  }
  // Rows are lists of texts, numbers or elements; `none` is the text without rows.
  function table(id, heads, rows, none) {
    const place = $(id);
    if (!rows.length) { place.append(make("p", "soft", none)); return; }
    const made = make("table"), head = make("tr");
    heads.forEach(text => head.append(make("th", "", text)));
    made.append(head);
    for (const row of rows) {
      const line = make("tr");
      for (const value of row) {
        const isNumber = typeof value === "number" || (value instanceof Node && value.classList.contains("number"));
        const cell = make("td", isNumber ? "number" : "", value instanceof Node ? null : value);
        if (value instanceof Node) cell.append(value);
        line.append(cell);
      }
      made.append(line);
    }
    place.append(made);
  }
  // A bar up to the expected value; red where the figure is a finding.
  function bar(row) {
    if (!row.expected) return make("span", "soft", "no expected figure");
    const scale = 200 / Math.max(row.expected, row.found);
    const short = data.findings.some(found => found.found === row.found && found.expected === row.expected);
    const image = drawn("svg", {width: 206, height: 14, role: "img", "aria-label": `${row.fraction} of ${row.expected}`});
    image.append(drawn("rect", {class: short ? "short" : "bar", width: row.found * scale, height: 10, y: 2}));
    image.append(drawn("line", {class: "mark", x1: row.expected * scale, x2: row.expected * scale, y1: 0, y2: 14}));
    return image;
  }
  function curve(values) {
    const image = drawn("svg", {width: 420, height: 44, role: "img", "aria-label": `${values.length} measurements`});
    const most = Math.max(...values) || 1, step = 416 / Math.max(1, values.length - 1);
    const points = values.map((value, at) => `${(2 + at * step).toFixed(1)},${(42 - 40 * value / most).toFixed(1)}`);
    image.append(drawn("polyline", {points: points.join(" ")}));
    return image;
  }
  function named(number) {
    const row = (data.burn_in.measured?.products || []).find(one => one.chip === number);
    return row?.address || `chip ${number}`;
  }

  const verdict = $("verdict");
  verdict.textContent = data.accepted ? "Accepted" : `Not accepted: ${data.findings.length} ${data.findings.length === 1 ? "finding" : "findings"}`;
  verdict.className = data.accepted ? "good" : "bad";
  const measured = data.burn_in.measured || {}, counters = data.burn_in.counters || {};
  const facts = {
    date: data.date, tool: data.tool, accelerators: `${data.accelerator.model} x ${data.accelerator.count}`,
    driver: data.driver.driver?.version, torch: measured.software?.torch, Python: data.burn_in.python, minutes: data.minutes,
  };
  for (const [name, value] of Object.entries(facts)) {
    describe($("facts"), name, String(value ?? ""));
  }
  table("findings", ["where", "what", "what to do"], data.findings.map(row => [row.where, row.what, row.action]), "none");
  table("figures", ["chip", "figure", "found", "expected", "fraction", ""], data.figures.map(row =>
    [row.chip, data.titles[row.figure], row.found, row.expected ?? "", row.fraction ?? "", bar(row)]), "nothing was measured");
  const windows = ["products", "copy"].flatMap(phase => (measured[phase] || []).map(row =>
    [named(row.chip), data.titles[phase === "products" ? "bf16_tflops" : "copy_tb_per_s"], row.lowest, row.highest, curve(row.windows)]));
  table("windows", ["chip", "figure", "lowest", "highest", "during the burn-in"], windows, "nothing was measured");
  const before = Object.fromEntries((counters.before || []).map(row => [row.chip, row]));
  const counts = (counters.after || []).flatMap(row => Object.entries({...row.errors, ...row.slowed}).map(([name, count]) => {
    const first = {...before[row.chip]?.errors, ...before[row.chip]?.slowed}[name] ?? 0;
    return [row.chip, name, first, make("span", count > first ? "bad number" : "number", count)];
  }));
  table("counters", ["chip", "counter", "before", "after"], counts, "none can be read on this host");
  table("peers", ["from", "to", "GB/s", "direct"], (measured.peer || []).map(row =>
    [named(row.from), named(row.to), row.median, row.direct === null ? "not known" : row.direct ? "yes" : "no"]), "not measured");
  const others = [];
  if (data.storage.gb_per_s !== undefined) others.push(["storage", `${data.storage.gb_per_s} GB/s from ${data.storage.file}`]);
  if (data.network.gbit_per_s !== undefined) others.push(["network", `${data.network.gbit_per_s} Gbit/s from ${data.network.peer}`]);
  for (const chat of data.chats) others.push([`chat with ${chat.item}`, chat.answer || chat.msg || ""]);
  for (const bench of data.benches) {
    const found = bench.figures;
    const figures = found && `${found.output_tokens_per_second} output tokens/s, TTFT ${found.ttft_ms} ms, ITL p99 ${found.itl_p99_ms} ms with ${found.concurrency} requests at a time`;
    others.push([`bench of ${bench.item}`, figures || bench.problem || bench.not_tried]);
  }
  table("others", ["part", "result"], others, "not tried");
  table("notes", ["note"], data.notes.map(note => [note]), "none");
  table("missing", ["what", "why"], data.not_tried.map(row => [row.what, row.why]), "everything was tried");
})();
