// Everything a page does: values under a pointer, curves off and on, light or dark, where the reader is.
(() => {
"use strict";
const root = document.documentElement;
const fail = (what) => { root.dataset.errors = `${root.dataset.errors ?? ""} ${what}`; };
addEventListener("error", (event) => fail(event.message));
const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];
const SAFE = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"};
const escape = (text) => String(text).replace(/[&<>"]/g, (c) => SAFE[c]);

// ---- what the pointer is on
const tip = document.getElementById("tip");
function place(x, y) {
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.max(6, Math.min(x + 14, innerWidth - box.width - 6)) + "px";
  tip.style.top = (y - box.height - 14 < 6 ? y + 18 : y - box.height - 14) + "px";
}
for (const point of all("[data-tip]")) {
  const show = () => {
    const box = point.getBoundingClientRect();
    tip.textContent = point.dataset.tip;
    place(box.left, box.top);
  };
  point.onpointerenter = point.onpointerdown = point.onfocus = show;
  point.onpointerleave = point.onblur = () => { tip.hidden = true; };
}

// ---- charts: drawn already; here are their values, and their legends
function hover(event, svg, stops, names, hidden) {
  const [left, right, top, bottom] = svg.dataset.box.split(" ").map(Number), box = svg.getBoundingClientRect();
  const x = ((event.clientX - box.left) * svg.viewBox.baseVal.width / box.width - left) / (right - left);
  let near = null, seen = [];
  for (const stop of stops) {
    const open = stop[2].filter(([s]) => !hidden.has(s));
    if (open.length && (!near || Math.abs(stop[1] - x) < Math.abs(near[1] - x))) [near, seen] = [stop, open];
  }
  if (!near) return;
  const at = left + near[1] * (right - left);
  svg.querySelector(".hover").innerHTML = `<path d="M${at} ${top}V${bottom}"/>` + seen.map(([s, up]) =>
    up === null ? "" : `<circle cx="${at}" cy="${bottom - up * (bottom - top)}" r="2.8" fill="${names[s][1]}"/>`).join("");
  tip.innerHTML = `<b>${escape(near[0])}</b>` + seen.map(([s, , value]) =>
    `<div><span class="chip" style="--chip:${names[s][1]}"></span>${escape(names[s][0])} <b>${escape(value)}</b></div>`).join("");
  place(event.clientX, event.clientY);
}
for (const figure of all("figure.chart")) {
  const {names, panels} = JSON.parse(figure.querySelector("script").textContent), hidden = new Set();
  all(".legend button", figure).forEach((button, s) => {
    button.onclick = () => {
      hidden.has(s) ? hidden.delete(s) : hidden.add(s);
      button.setAttribute("aria-pressed", String(!hidden.has(s)));
      for (const part of all(`[data-s="${s}"]`, figure)) part.style.display = hidden.has(s) ? "none" : "";
    };
  });
  all(".panel", figure).forEach((panel, i) => {
    const drawings = all("svg", panel);
    const shown = () => drawings.find((svg) => svg.clientWidth) ?? drawings[0];
    panel.onpointermove = panel.onpointerdown = (event) => hover(event, shown(), panels[i], names, hidden);
    panel.onpointerleave = () => {
      tip.hidden = true;
      for (const svg of drawings) svg.querySelector(".hover").innerHTML = "";
    };
  });
}

// ---- tables wider than the screen say so
const widths = new ResizeObserver((changed) => requestAnimationFrame(() => {
  for (const {target} of changed) target.classList.toggle("more", target.scrollWidth > target.clientWidth + 1);
}));
all(".scroll").forEach((box) => widths.observe(box));

// ---- rows of a long table, by what is typed
for (const field of all("input[data-table]")) {
  const rows = all("tbody tr", document.getElementById(field.dataset.table)), said = field.nextElementSibling;
  const plain = (text) => text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();  // u finds ü
  const names = rows.map((row) => plain(row.cells[0].textContent));
  const find = () => {
    const parts = plain(field.value).split(/\s+/).filter(Boolean);
    let count = 0;
    rows.forEach((row, i) => { row.hidden = !parts.every((part) => names[i].includes(part)); count += !row.hidden; });
    said.textContent = parts.length ? `${count.toLocaleString("en")} of ${rows.length.toLocaleString("en")}` : "";
  };
  field.oninput = find;
  find();  // a page that comes back keeps what was typed
}

// ---- light, dark, or as the system says
const toggle = document.getElementById("scheme"), modes = {auto: "◐ Auto", light: "○ Light", dark: "● Dark"};
let mode = "auto";
try { mode = localStorage.getItem("scheme") ?? "auto"; } catch { /* private windows have no memory */ }
const apply = () => { root.dataset.scheme = mode; toggle.textContent = modes[mode]; };
toggle.onclick = () => {
  mode = {auto: "light", light: "dark", dark: "auto"}[mode] ?? "auto";
  try { localStorage.setItem("scheme", mode); } catch { /* as above */ }
  apply();
};
apply();

// ---- where the reader is; a link into something folded unfolds it
const links = new Map(all("nav a").map((a) => [a.hash.slice(1), a]));
const watch = new IntersectionObserver((entries) => {
  for (const {isIntersecting, target} of entries) if (isIntersecting) {
    links.forEach((a) => a.removeAttribute("aria-current"));
    const link = links.get(target.id);
    link.setAttribute("aria-current", "true");
    link.parentElement.scrollTo({left: link.offsetLeft - 40, behavior: "smooth"});
  }
}, {rootMargin: "-15% 0px -75% 0px"});
links.forEach((a, id) => { const part = document.getElementById(id); if (part) watch.observe(part); });
function unfold() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  for (let part = target; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
  for (const part of all(":scope > details.study", target)) part.open = true;
  target.scrollIntoView();
}
addEventListener("hashchange", unfold);
links.forEach((a) => a.addEventListener("click", () => setTimeout(unfold)));
unfold();

// For tests, and for whoever wonders: files fetched (none).
root.dataset.fetched = performance.getEntriesByType("resource").filter((e) => !e.name.startsWith("data:")).length;
})();
