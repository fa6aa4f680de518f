
// Copyright (c) 2026, the baremetal.inference authors; SPDX-License-Identifier: GPL-3.0-or-later
(() => {
  const rollout = JSON.parse(document.getElementById("data").textContent);
  const BAD = new Set(["failed", "rolled_back", "skipped", "out", "unfinished"]);
  const MARKS = {done: "✓", failed: "✗", rolled_back: "↺", skipped: "–", out: "○", unfinished: "…", untouched: ""};
  const MEANINGS = {
    done: "changed, and serves", failed: "failed, and was not brought back", rolled_back: "failed, and is what it was before",
    skipped: "was left as it was", out: "is left out of the gateway", unfinished: "in the middle of its turn",
    untouched: "its turn has not begun",
  };
  const STEP_MEANINGS = {
    drain: "taken out of the gateways", idle: "waited until nothing ran", measure: "measured before the change",
    driver: "changed the driver", apply: "changed, stopped, started, verified", gate: "asked prompts and measured",
    ready: "back in the gateways", watch: "watched the gateways' errors", restore: "brought back what ran before",
  };
  // Number of rows that long tables show at first.
  const FEW = 50;
  // So many failed hosts are listed at the top.
  const TOLD = 5;
  // Above this many hosts a table has one line for each cluster.
  const MANY = 1000;
  // Pixels that a label of the time axis needs, and the most labels of a wide page.
  const LABEL = 84;
  const LABELS = 8;
  const brief = (text) => (text.length > 200 ? `${text.slice(0, 200)}...` : text).replace(/\s*\n-?\s*/g, " ");

  const number = (value) => (typeof value === "number" ? value.toLocaleString("en", {maximumFractionDigits: 3}) : "");
  const utc = (seconds) => `${new Date(seconds * 1000).toISOString().slice(0, 19).replace("T", " ")} UTC`;

  function length(seconds) {
    if (seconds < 60) return `${Math.round(seconds * 10) / 10} s`;
    const whole = Math.round(seconds);
    const parts = [[Math.floor(whole / 3600), "h"], [Math.floor(whole / 60) % 60, "min"], [whole % 60, "s"]];
    return parts.filter(([count]) => count).slice(0, 2).map((part) => part.join(" ")).join(" ");
  }

  function table(headers, rows, numbers) {
    const element = make("table");
    const head = make("tr");
    headers.forEach((name, index) => head.append(make("th", numbers.includes(index) ? "n" : "", name)));
    element.append(make("thead"), make("tbody"));
    element.tHead.append(head);
    for (const cells of rows) {
      const row = make("tr");
      cells.forEach((cell, index) => {
        const content = make("td", numbers.includes(index) ? "n" : "");
        content.append(cell);
        row.append(content);
      });
      element.tBodies[0].append(row);
    }
    return element;
  }

  // A table of many rows shows the first ones, and all at a click.
  function longTable(where, headers, rows, numbers) {
    const put = (some) => where.replaceChildren(table(headers, some, numbers));
    put(rows.slice(0, FEW));
    if (rows.length <= FEW) return;
    const more = make("button", "more", `all ${rows.length.toLocaleString("en")}`);
    more.type = "button";
    more.addEventListener("click", () => put(rows));
    where.append(more);
  }

  const gatesOf = new Map();
  for (const gate of rollout.gates) {
    if (!gatesOf.has(gate[0])) gatesOf.set(gate[0], []);
    gatesOf.get(gate[0]).push(gate);
  }
  const changesOf = new Map();
  for (const change of rollout.changes) {
    for (const host of change[3]) {
      if (!changesOf.has(host)) changesOf.set(host, []);
      changesOf.get(host).push(change);
    }
  }

  // Times are seconds since the begin; the pauses between two runs are left out of what is shown.
  const shownAt = (at) => rollout.pauses.reduce((shown, [began, pause]) => (at >= began ? shown - pause : shown), at);
  const pauses = rollout.pauses.map(([began, pause]) => ({at: shownAt(began), pause}));

  const hosts = rollout.hosts.map(([name, cluster, wave, state, why, steps], index) => {
    const host = {
      index, name, cluster: rollout.texts[cluster], wave, state: rollout.states[state], why: rollout.texts[why],
      steps: steps.map(([step, at, seconds, detail, broke]) => ({
        step: rollout.steps[step], real: at, at: shownAt(at), seconds, detail: rollout.texts[detail || 0], broke: Boolean(broke),
        ends: rollout.ends.includes(rollout.steps[step]),
      })),
    };
    host.begin = steps.length ? host.steps[0].at : 0;
    host.end = host.steps.reduce((end, step) => Math.max(end, step.at + step.seconds), host.begin);
    const instances = (changesOf.get(index) || []).map((change) => change[0]);
    host.hay = [name, host.cluster, host.state, host.why, ...instances].join("\n").toLowerCase();
    return host;
  });

  function facts() {
    const good = rollout.result === "done";
    const counts = rollout.states.filter((state) => rollout.totals[state]).map((state) => `${rollout.totals[state].toLocaleString("en")} ${state.replace("_", " ")}`);
    $("result").className = good ? "good" : rollout.result === "running" ? "" : "bad";
    $("result").textContent = `${good ? "✓" : rollout.result === "running" ? "…" : "✗"} ${rollout.result} · ${many(rollout.totals.hosts, "host")}${counts.length ? `: ${counts.join(", ")}` : ""}`;
    $("reason").textContent = rollout.reason || (rollout.result === "interrupted" ? "The journal is incomplete: the run was killed. Run the playbook again; it continues from here." : "");
    const list = $("facts");
    const add = (name, value) => describe(list, name, value);
    const served = rollout.requests.total;
    // One line for each change of several.
    add("what", rollout.summary.split(" | ").join("\n"));
    const bad = hosts.filter((host) => BAD.has(host.state));
    add("not done", bad.slice(0, TOLD).map((host) => `${host.name}: ${brief(host.why) || MEANINGS[host.state]}`)
      .concat(bad.length > TOLD ? [`and ${(bad.length - TOLD).toLocaleString("en")} more`] : []).join("\n"));
    add("kind", rollout.kind);
    add("who", [rollout.user, rollout.controller].filter(Boolean).join(" on "));
    add("clusters", rollout.clusters.join(", "));
    add("when", `${utc(rollout.began)} to ${utc(rollout.last)}, ${length(rollout.seconds)}`);
    for (const [index, run] of rollout.sessions.entries()) {
      if (!index) continue;
      add("went on", `${utc(run.began)} by ${[run.user, run.controller].filter(Boolean).join(" on ")}, after ${length(rollout.pauses[index - 1][1])}`);
    }
    if (Object.keys(rollout.requests.gateways).length) {
      add("requests", `${number(served.requests)} at the gateways, ${number(served.server_errors)} failed${served.open ? `, ${number(served.open)} still running or left by their clients` : ""}`);
    }
  }

  // The timeline.
  const span = () => {
    const shown = hosts.filter((host) => host.steps.length);
    const last = aligned
      ? Math.max(0, ...shown.map((host) => host.end - host.begin))
      : shown.reduce((end, host) => Math.max(end, host.end), 0);
    return last || 1;
  };
  let aligned = false;

  function bars(host, whole) {
    host.track.textContent = "";
    const from = aligned ? host.begin : 0;
    for (const step of host.steps) {
      if (step.ends || step.at - from > whole) continue;
      const bar = make("i", `bar${step.broke ? " broke" : ""}`);
      // Names of steps are words of the journal; only those that are known have a colour.
      if (STEP_MEANINGS[step.step]) bar.classList.add(step.step);
      bar.style.setProperty("left", `${(100 * (step.at - from)) / whole}%`);
      bar.style.setProperty("width", `${(100 * step.seconds) / whole}%`);
      bar.title = `${step.step}${step.broke ? " (broke off)" : ""}, ${length(step.seconds)}`;
      host.track.append(bar);
    }
    if (aligned) return;
    for (const {at, pause} of pauses) {
      const mark = make("i", "pause");
      mark.style.setProperty("left", `${Math.min(100, (100 * at) / whole)}%`);
      mark.title = `interrupted for ${length(pause)}`;
      host.track.append(mark);
    }
  }

  function axis(whole) {
    const track = make("div", "track");
    $("axis").replaceChildren(track);
    const room = track.clientWidth;
    const most = Math.max(1, Math.min(LABELS, Math.floor(room / LABEL)));
    const size = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400].find((step) => whole / step <= most) || whole / most;
    for (let at = 0; at < whole; at += size) {
      const tick = make("span", "", at ? `+${length(at)}` : "0");
      tick.style.setProperty("left", `${(100 * at) / whole}%`);
      track.append(tick);
      // The last label needs room too.
      if (at && tick.offsetLeft + tick.offsetWidth > room) tick.remove();
    }
  }

  function draw() {
    const whole = span();
    axis(whole);
    for (const host of hosts) bars(host, whole);
  }

  // Hosts that need attention come first, then all others by wave.
  const ordered = [...hosts.filter((host) => BAD.has(host.state)), ...hosts.filter((host) => !BAD.has(host.state))];

  const places = [];
  function build() {
    const all = document.createDocumentFragment();
    let place = null;
    for (const host of ordered) {
      const bad = BAD.has(host.state);
      const key = JSON.stringify([bad, host.wave, host.cluster]);
      if (!place || place.key !== key) {
        place = {key, element: make("section", "wave"), hosts: []};
        const title = [bad && "not done", host.wave === null ? "no wave" : `wave ${host.wave + 1}`, host.cluster].filter(Boolean).join(" · ");
        place.element.append(make("h3", "", title));
        places.push(place);
        all.append(place.element);
      }
      const row = make("button", "host");
      row.type = "button";
      row.tabIndex = -1;
      row.dataset.i = host.index;
      row.setAttribute("aria-label", `${host.name}, ${host.state}`);
      row.append(make("span", "", host.name));
      row.append(make("span", BAD.has(host.state) ? "bad" : "soft", `${MARKS[host.state]} ${host.state.replace("_", " ")}`));
      host.track = make("span", "track");
      row.append(host.track);
      row.firstChild.title = host.name;
      host.button = row;
      place.hosts.push(host);
      place.element.append(row);
    }
    $("rows").append(all);
    for (const [step, meaning] of Object.entries(STEP_MEANINGS)) {
      if (!hosts.some((host) => host.steps.some((taken) => taken.step === step))) continue;
      const entry = make("span");
      entry.append(make("i", step), step);
      entry.title = meaning;
      $("legend").append(entry);
    }
  }

  const chosen = new Set();
  function states() {
    for (const state of rollout.states) {
      if (!rollout.totals[state]) continue;
      const entry = make("button", BAD.has(state) ? "bad" : "", `${MARKS[state]} ${state.replace("_", " ")} ${rollout.totals[state].toLocaleString("en")}`.trim());
      makeFilter(entry, MEANINGS[state], state, chosen, apply);
      $("states").append(entry);
    }
  }

  function apply() {
    const searched = words();
    let shown = 0;
    for (const place of places) {
      let here = 0;
      for (const host of place.hosts) {
        host.fits = (!chosen.size || chosen.has(host.state)) && searched.every((word) => host.hay.includes(word));
        host.button.hidden = !host.fits;
        here += host.fits;
      }
      place.element.hidden = !here;
      shown += here;
    }
    $("shown").textContent = shown < hosts.length ? `${many(shown, "host")} of ${hosts.length.toLocaleString("en")} shown` : "";
    if (!roving || !roving.fits) rove(ordered.find((host) => host.fits));
  }

  // Details of one host.
  let selected = null;

  function lines(change) {
    const block = make("div");
    for (const [what, before, after] of change[1]) {
      const line = make("div");
      line.append(make("span", "soft", `${what} `), `${before === null ? "none" : before} → ${after === null ? "none" : after}`);
      block.append(line);
    }
    if (!change[1].length) block.append(make("div", "soft", "only files"));
    return block;
  }

  function gateRows(gate) {
    const [, , before, after, verdicts] = gate;
    const rows = rollout.figures.map((name, index) => [name, before ? number(before[index]) : "", after ? number(after[index]) : ""]);
    const found = make("div");
    if (before || after) found.append(table(["", "before", "after"], rows.filter((row) => row[1] || row[2]), [1, 2]));
    for (const [name, ok, detail] of verdicts) {
      found.append(make("div", ok ? "" : "bad", `${ok ? "✓" : "✗"} ${name}: ${rollout.texts[detail]}`));
    }
    return found;
  }

  function show(host) {
    if (selected) selected.button.removeAttribute("aria-current");
    selected = host;
    const detail = $("detail");
    detail.textContent = "";
    detail.hidden = !host;
    if (!host) return;
    host.button.setAttribute("aria-current", "true");
    const close = make("button", "", "×");
    close.type = "button";
    close.setAttribute("aria-label", "Close");
    close.addEventListener("click", () => show(null));
    detail.append(close, make("h2", "", host.name));
    detail.append(make("p", BAD.has(host.state) ? "bad" : "", `${host.state.replace("_", " ")}: ${MEANINGS[host.state]}`));
    if (host.why) detail.append(make("p", "why", host.why));
    const list = make("dl");
    const add = (name, value) => describe(list, name, value);
    add("cluster", host.cluster);
    add("wave", host.wave === null ? "" : String(host.wave + 1));
    for (const change of changesOf.get(host.index) || []) add(change[0], lines(change));
    if (host.steps.length) {
      add("steps", table(["", "at", "took", ""], host.steps.map((step) => [
        step.step, utc(rollout.began + step.real).slice(11, 19), step.ends ? "" : `${length(step.seconds)}${step.broke ? ", broke off" : ""}`,
        step.detail === host.why ? "" : step.detail,
      ]), [2]));
    }
    for (const gate of gatesOf.get(host.index) || []) add(`gate ${rollout.texts[gate[1]]}`, gateRows(gate));
    detail.append(list);
    detail.scrollTop = 0;
  }

  function hostOf(event) {
    const row = event.target.closest && event.target.closest(".host[data-i]");
    return row ? hosts[Number(row.dataset.i)] : null;
  }

  function listen() {
    listenToSearch(apply, show);
    $("align").addEventListener("click", () => {
      aligned = !aligned;
      $("align").setAttribute("aria-pressed", String(aligned));
      draw();
    });
    const choose = (event) => {
      const host = hostOf(event);
      if (!host || host === selected) return;
      rove(host);
      show(host);
    };
    $("rows").addEventListener("click", choose);
    $("rows").addEventListener("keydown", (event) => {
      const host = hostOf(event);
      if (!host || !["ArrowUp", "ArrowDown", "Home", "End"].includes(event.key)) return;
      event.preventDefault();
      const fitting = ordered.filter((other) => other.fits);
      const at = fitting.indexOf(host);
      const next = {ArrowUp: fitting[at - 1], ArrowDown: fitting[at + 1], Home: fitting[0], End: fitting[fitting.length - 1]}[event.key];
      if (!next) return;
      next.button.focus();
      rove(next);
      show(next);
    });
    // A narrower page has room for fewer labels.
    let drawn = window.innerWidth;
    let redraw = 0;
    window.addEventListener("resize", () => {
      if (drawn === window.innerWidth) return;
      drawn = window.innerWidth;
      cancelAnimationFrame(redraw);
      redraw = requestAnimationFrame(() => axis(span()));
    });
  }

  // The tables.
  const named = (indexes) => {
    const names = indexes.slice(0, 5).map((index) => hosts[index].name).join(", ");
    return indexes.length > 5 ? `${names} and ${(indexes.length - 5).toLocaleString("en")} more` : names;
  };

  // One line for each cluster, the worst first.
  function clusters() {
    const shown = rollout.states.filter((state) => rollout.totals[state]);
    const byName = new Map();
    for (const host of hosts) {
      if (!byName.has(host.cluster)) byName.set(host.cluster, {name: host.cluster, hosts: 0, bad: 0, counts: new Map()});
      const cluster = byName.get(host.cluster);
      cluster.hosts += 1;
      cluster.bad += BAD.has(host.state);
      cluster.counts.set(host.state, (cluster.counts.get(host.state) || 0) + 1);
    }
    const rows = [...byName.values()].sort((a, b) => b.bad - a.bad || (a.name < b.name ? -1 : 1)).map((cluster) => [
      cluster.name || "no cluster", number(cluster.hosts), ...shown.map((state) => number(cluster.counts.get(state) || 0)),
    ]);
    const headers = ["cluster", "hosts", ...shown.map((state) => state.replace("_", " "))];
    longTable($("clusters"), headers, rows, headers.map((_name, index) => index).slice(1));
  }

  function tables() {
    const nothing = (where, text) => where.append(make("p", "soft", text));
    if (hosts.length > MANY) clusters();
    else $("clusters").parentNode.hidden = true;
    if (rollout.durations.length) {
      const rows = rollout.durations.map(([name, count, median, most, host]) => [name, STEP_MEANINGS[name] || "", number(count), length(median), length(most), host]);
      $("steps").append(table(["step", "", "times", "median", "longest", "host"], rows, [2, 3, 4]));
    } else nothing($("steps"), "No step was finished.");

    const keys = ["requests", "ok", "client_errors", "server_errors", "denied", "open"];
    const counted = [...Object.entries(rollout.requests.services).map(([name, sums]) => [`service ${name}`, sums]), ...Object.entries(rollout.requests.gateways).map(([name, sums]) => [`gateway ${name}`, sums])];
    if (counted.length) {
      counted.push(["all", rollout.requests.total]);
      $("requests").append(table(["", "requests", "ok", "client errors", "failed", "denied", "still running, or left by the client"], counted.map(([name, sums]) => [name, ...keys.map((key) => number(sums[key] || 0))]), [1, 2, 3, 4, 5, 6]));
      if (rollout.requests.restarts) nothing($("requests"), `A gateway was restarted meanwhile (${rollout.requests.restarts}): what it had counted since its last reading is missing.`);
      if (rollout.requests.address_moves) nothing($("requests"), `The shared address moved ${rollout.requests.address_moves} times. Requests that ran at a gateway when the address left it are lost, and no gateway counts them.`);
    } else nothing($("requests"), "No gateway was read.");

    if (rollout.changes.length) {
      longTable($("changes"), ["instance", "what", "files", "hosts", ""], rollout.changes.map((change) => [change[0], lines(change), change[2].join(", "), number(change[3].length), named(change[3])]), [3]);
    } else nothing($("changes"), "The journal names no change.");

    const gates = rollout.gates.map((gate) => {
      const [before, after] = [gate[2] || [], gate[3] || []];
      return {gate, before, after, share: before[0] ? after[0] / before[0] : null, bad: gate[4].filter((verdict) => !verdict[1])};
    });
    // The worst first.
    gates.sort((a, b) => (b.bad.length - a.bad.length) || ((a.share === null ? 9 : a.share) - (b.share === null ? 9 : b.share)));
    if (gates.length) {
      longTable($("gates"), ["host", "instance", "tokens/s before", "after", "share", "first token s before", "after", ""], gates.map(({gate, before, after, share, bad}) => {
        const verdict = make("span", bad.length ? "bad" : "good", bad.length ? `✗ ${bad.map((row) => `${row[0]}: ${rollout.texts[row[2]]}`).join("; ")}` : "✓");
        return [typeof gate[0] === "number" ? hosts[gate[0]].name : gate[0], rollout.texts[gate[1]], number(before[0]), number(after[0]), share === null || !after[0] ? "" : share.toFixed(2), number(before[1]), number(after[1]), verdict];
      }), [2, 3, 4, 5, 6]);
    } else nothing($("gates"), "No gate was asked.");

    if (rollout.options.length) $("options").append(table(["", ""], rollout.options, []));
    else nothing($("options"), "None is known.");
  }

  facts();
  build();
  states();
  draw();
  listen();
  apply();
  tables();
})();
