// Copyright (c) 2026, the baremetal.inference authors; SPDX-License-Identifier: GPL-3.0-or-later
"use strict";
// What the pages have in common. Texts of hosts become text nodes and attributes, never HTML.
const $ = (id) => document.getElementById(id);
const many = (count, what) => `${count.toLocaleString("en")} ${what}${count === 1 ? "" : "s"}`;

function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined && text !== null) element.textContent = text;
  return element;
}

// Add a name with its value or values to a list; empty ones are left out.
function describe(list, name, value) {
  const values = [value].flat().filter(Boolean);
  if (!values.length) return;
  const content = make("dd");
  content.append(...values);
  list.append(make("dt", "", name), content);
}

// One button of a host takes part in the order of the Tab key; arrows move from there.
let roving = null;
function rove(host) {
  if (roving) roving.button.tabIndex = -1;
  roving = host || null;
  if (host) host.button.tabIndex = 0;
}

// A click adds a key to the chosen ones, or takes it out of them.
function makeFilter(button, title, key, chosen, apply) {
  button.type = "button";
  button.title = title;
  button.dataset.key = key;
  button.setAttribute("aria-pressed", "false");
  button.addEventListener("click", () => {
    const on = !chosen.delete(key);
    if (on) chosen.add(key);
    button.setAttribute("aria-pressed", String(on));
    apply();
  });
}

// The words of the search field, and the keys for the whole page.
const words = () => $("q").value.toLowerCase().split(/\s+/).filter(Boolean);
function listenToSearch(apply, show) {
  let waiting = 0;
  $("q").addEventListener("input", () => {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(apply);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") show(null);
    if (event.key === "/" && document.activeElement !== $("q")) {
      event.preventDefault();
      $("q").focus();
    }
  });
}
