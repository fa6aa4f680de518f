
// Copyright (c) 2026, the baremetal.inference authors; SPDX-License-Identifier: GPL-3.0-or-later
(() => {
  const fleet = JSON.parse(document.getElementById("data").textContent);
  const MARKS = {
    sick: "×", conflict: "!", unknown: "?", stale: "", drained: "‖", drifted: "≠", serves: "✓", declared: "", seen: "",
    unseen: "–",
  };
  const MEANINGS = {
    sick: "a gateway finds an instance of it down or sick",
    conflict: "what was declared is not what was found",
    unknown: "has a chip that no file of the catalogue lists",
    stale: "gave no answer to the last probe",
    drained: "a person or a rollout has taken it out of service",
    drifted: "what is installed is not what was planned",
    serves: "in service at its gateways",
    declared: "declared in the inventory, never seen",
    seen: "was seen, and is what was declared if anything was",
    unseen: "no accelerator is declared or detected",
  };
  const ATTENTION = new Set(["sick", "conflict", "unknown", "stale", "drained", "drifted", "unseen"]);
  // Up to this many hosts each one gets a card with its name.
  const CARDS = 120;

  function age(seconds) {
    const past = Date.now() / 1000 - seconds;
    for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60]]) {
      if (past >= size) return `${Math.floor(past / size)} ${unit} ago`;
    }
    return "just now";
  }

  function reason(state, seen, why) {
    if (state !== "stale") return why;
    return `${seen ? `last answer ${age(seen)}` : "never answered"}: ${why}`;
  }

  // Colours are set once for each row; its tiles inherit them.
  function paint(element, models) {
    models.slice(0, 2).forEach((model, index) => {
      const look = fleet.models[model];
      const [light, chroma, hue] = index ? ["--m", "--d", "--i"] : ["--l", "--c", "--h"];
      const grey = look.hue === null;
      element.style.setProperty(light, String(look.light));
      element.style.setProperty(chroma, grey ? "0.012" : "0.13");
      element.style.setProperty(hue, grey ? "250" : String(look.hue));
    });
    if (models.length > 1) element.classList.add("two");
    if (!models.length) element.classList.add("grey");
  }

  function mark(element, state) {
    element.classList.add(state);
    if (MARKS[state]) element.dataset.mark = MARKS[state];
  }

  // The fleet: sites > clusters > a row for each accelerator > a tile for each host.
  const hosts = [];
  const places = [];
  const main = $("fleet");

  function buildHost(values, row, cluster, site) {
    const [name, state, counts, seen, found, facts, declared, serves, why, todo] = values;
    const numbers = Array.isArray(counts) ? counts : [counts || 0];
    const host = {
      name, seen: seen || 0, row, site: site.name, cluster: cluster.name, models: row.models,
      state: fleet.states[state || 0], index: hosts.length,
      chips: row.models.map((model, index) => (model === "cpu" ? model : `${model} x ${numbers[index]}`)).join(", "),
      count: row.models.reduce((sum, model, index) => sum + (model === "cpu" ? 0 : numbers[index]), 0),
      found: fleet.texts[found || 0] || "", facts: fleet.texts[facts || 0] || "",
      declared: fleet.texts[declared || 0] || "", serves: fleet.serves[serves || 0] || [],
      why: reason(fleet.states[state || 0], seen, fleet.texts[why || 0] || ""), todo: fleet.texts[todo || 0] || "",
    };
    host.hay = [
      name, host.state, host.cluster, host.site, row.words, ...host.serves.flat(),
    ].join("\n").toLowerCase();
    const tile = make("button", "t");
    tile.type = "button";
    tile.tabIndex = -1;
    mark(tile, host.state);
    tile.title = `${name}\n${host.chips || "no accelerator known"}, ${host.state}`;
    tile.setAttribute("aria-label", `${name}, ${host.chips || "no accelerator known"}, ${host.state}`);
    tile.dataset.i = host.index;
    host.button = tile;
    hosts.push(host);
    return host;
  }

  function place(element, title, label, parent) {
    const entry = {element, label, parent, shown: 0, chips: 0};
    places.push(entry);
    element.prepend(title);
    title.append(label);
    return entry;
  }

  function build() {
    const all = document.createDocumentFragment();
    for (const site of fleet.sites) {
      const ofSite = make("section", "site");
      const sitePlace = place(ofSite, make("h2", "", site.name), make("span", "total"), null);
      if (!site.name && fleet.sites.length === 1) ofSite.firstChild.hidden = true;
      if (!site.name) ofSite.firstChild.prepend("no site");
      for (const cluster of site.clusters) {
        const ofCluster = make("section", "cluster");
        const title = make("h3", "", cluster.name || "no cluster");
        const clusterPlace = place(ofCluster, title, make("span", "total"), sitePlace);
        for (const row of cluster.rows) {
          row.words = row.models.flatMap((key) => [key, fleet.models[key].title, fleet.models[key].family]).join(" ");
          const ofRow = make("div", "row");
          const name = make("h4", "", row.models.join(" + ") || "not known");
          name.title = row.models.map((key) => fleet.models[key].title).join(" + ");
          row.place = place(ofRow, name, make("span", "total"), clusterPlace);
          paint(ofRow, row.models);
          const tiles = make("div", "tiles");
          for (const values of row.hosts) tiles.append(buildHost(values, row, cluster, site).button);
          ofRow.append(tiles);
          ofCluster.append(ofRow);
        }
        ofSite.append(ofCluster);
      }
      all.append(ofSite);
    }
    main.append(all);
    none.hidden = true;
    main.append(none);
  }
  const none = make("p", "none", "No host fits.");

  // Legends: counts of the whole fleet, and filters.
  const chosen = {state: new Set(), model: new Set()};

  function legend(where, kind, key, name, title, count, dress) {
    const entry = make("button", "entry");
    const swatch = make("span", "t");
    swatch.setAttribute("aria-hidden", "true");
    dress(entry, swatch);
    entry.append(swatch, make("span", "name", name), make("span", "n", count));
    makeFilter(entry, title, key, chosen[kind], apply);
    where.append(entry);
  }

  function buildLegends() {
    const states = new Map();
    const models = new Map();
    for (const host of hosts) {
      states.set(host.state, (states.get(host.state) || 0) + 1);
      for (const model of host.models.length ? host.models : [""]) {
        models.set(model, (models.get(model) || 0) + 1);
      }
    }
    for (const state of fleet.states) {
      if (!states.has(state)) continue;
      legend($("states"), "state", state, state, MEANINGS[state], states.get(state).toLocaleString("en"), (entry, swatch) => {
        paint(entry, []);
        mark(swatch, state);
      });
    }
    for (const [model, count] of [...models].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1))) {
      const title = model ? fleet.models[model].title : "hosts of which no accelerator is known";
      legend($("models"), "model", model, model || "not known", title, count.toLocaleString("en"), (entry, swatch) => {
        paint(entry, model ? [model] : []);
        mark(swatch, model === "unknown" ? "unknown" : model ? "seen" : "unseen");
      });
    }
  }

  // Filter.
  function apply() {
    const searched = words();
    for (const entry of places) entry.shown = entry.chips = 0;
    let shown = 0;
    let chips = 0;
    for (const host of hosts) {
      const fits = (!chosen.state.size || chosen.state.has(host.state))
        && (!chosen.model.size || (host.models.length ? host.models : [""]).some((model) => chosen.model.has(model)))
        && searched.every((word) => host.hay.includes(word));
      host.fits = fits;
      if (host.button.hidden === fits) host.button.hidden = !fits;
      if (!fits) continue;
      shown += 1;
      chips += host.count;
      for (let entry = host.row.place; entry; entry = entry.parent) {
        entry.shown += 1;
        entry.chips += host.count;
      }
    }
    for (const entry of places) {
      const hide = !entry.shown;
      if (entry.element.hidden !== hide) entry.element.hidden = hide;
      const text = many(entry.shown, "host") + (entry.chips ? ` · ${many(entry.chips, "chip")}` : "");
      if (entry.label.textContent !== text) entry.label.textContent = text;
    }
    none.hidden = shown > 0;
    const some = shown < hosts.length;
    $("shown").textContent = some ? `${many(shown, "host")} of ${hosts.length.toLocaleString("en")} shown, ${many(chips, "chip")}` : "";
    cards(shown <= CARDS);
    if (!roving || !roving.fits) rove(hosts.find((host) => host.fits));
  }

  function cards(on) {
    main.classList.toggle("cards", on);
    if (!on) return;
    for (const host of hosts) {
      if (!host.fits || host.button.firstChild) continue;
      const mini = make("span", "t mini");
      mark(mini, host.state);
      const words = make("span", "words");
      words.append(make("b", "", host.name));
      words.append(make("i", "", `${host.chips || "no accelerator known"}, ${host.state}`));
      if (host.serves.length) words.append(make("i", "", `serves ${host.serves.map(([instance]) => instance).join(", ")}`));
      if (ATTENTION.has(host.state)) words.append(make("i", "why", host.why));
      host.button.append(mini, words);
    }
  }

  // Details of one host.
  let selected = null;

  function show(host) {
    if (selected) selected.button.removeAttribute("aria-current");
    selected = host;
    const detail = $("detail");
    detail.textContent = "";
    if (!host) {
      detail.append(make("p", "hint", "Click a host, or move with the arrow keys."));
      return;
    }
    host.button.setAttribute("aria-current", "true");
    detail.append(make("h2", "", host.name));
    detail.append(make("p", ATTENTION.has(host.state) ? "state attention" : "state", `${host.state}: ${MEANINGS[host.state]}`));
    const list = make("dl");
    const add = (name, value) => describe(list, name, value);
    add("why", host.why);
    add("to do", host.todo);
    add("accelerator", [host.chips, host.models.map((key) => fleet.models[key].title).join(" + ")].filter(Boolean).join(" · "));
    add("declared", host.declared);
    add("found", [host.found, host.facts].filter(Boolean).join(", "));
    add("last answer", host.seen && `${age(host.seen)} (${new Date(host.seen * 1000).toISOString().slice(0, 16).replace("T", " ")} UTC)`);
    add("cluster", host.cluster);
    add("site", host.site);
    add("serves", host.serves.map(([instance, recipe, beside]) => {
      const line = make("div", "", beside ? `${instance}, with ${beside},` : instance);
      if (recipe) line.append(" ", make("span", "recipe", recipe));
      return line;
    }));
    detail.append(list);
    detail.scrollTop = 0;
  }

  function hostOf(event) {
    const tile = event.target.closest && event.target.closest("main .t[data-i]");
    return tile ? hosts[Number(tile.dataset.i)] : null;
  }

  function beside(host, key) {
    const fitting = hosts.filter((other) => other.fits);
    const at = fitting.indexOf(host);
    if (key === "ArrowRight") return fitting[at + 1];
    if (key === "ArrowLeft") return fitting[at - 1];
    if (key === "Home") return fitting[0];
    if (key === "End") return fitting[fitting.length - 1];
    const step = key === "ArrowDown" ? 1 : -1;
    const from = host.button.getBoundingClientRect();
    let best = null;
    let line = null;
    for (let index = at + step; fitting[index]; index += step) {
      const box = fitting[index].button.getBoundingClientRect();
      if (Math.abs(box.top - from.top) < 2) continue;
      if (line !== null && Math.abs(box.top - line) > 2) break;
      line = box.top;
      const far = Math.abs(box.left - from.left);
      if (!best || far < best.far) best = {far, host: fitting[index]};
    }
    return best && best.host;
  }

  function listen() {
    listenToSearch(apply, show);
    const choose = (event) => {
      const host = hostOf(event);
      if (!host || host === selected) return;
      rove(host);
      show(host);
    };
    main.addEventListener("click", choose);
    main.addEventListener("focusin", choose);
    main.addEventListener("keydown", (event) => {
      const host = hostOf(event);
      if (!host || !["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End"].includes(event.key)) return;
      event.preventDefault();
      const next = beside(host, event.key);
      if (next) next.button.focus();
    });
  }

  build();
  buildLegends();
  const chips = hosts.reduce((sum, host) => sum + host.count, 0);
  const clusters = fleet.sites.reduce((sum, site) => sum + site.clusters.filter((cluster) => cluster.name).length, 0);
  const newest = hosts.reduce((latest, host) => Math.max(latest, host.seen), 0);
  const sites = fleet.sites.filter((site) => site.name).length;
  $("sum").textContent = [
    many(hosts.length, "host"), chips && many(chips, "chip"), clusters && many(clusters, "cluster"),
    sites && many(sites, "site"), newest && `newest answer ${age(newest)}`,
  ].filter(Boolean).join(" · ");
  listen();
  apply();
})();
