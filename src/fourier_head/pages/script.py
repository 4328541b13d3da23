"""The page's own script: draws charts as SVG that follows width and colour scheme, with values on hover or touch.

Written for one page rather than taken from a plotting library: a few kilobytes instead of megabytes, colours that are
CSS variables and so change with the scheme at once, and nothing to fetch.
"""

from __future__ import annotations

SCRIPT = r"""
(() => {
"use strict";
const root = document.documentElement;
const errors = [];
const fail = (what) => { errors.push(String(what)); root.dataset.errors = errors.join(" | "); };
addEventListener("error", (event) => fail(event.message));
addEventListener("unhandledrejection", (event) => fail(event.reason));

// ---- words and numbers
const SAFE = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"};
const escape = (text) => String(text).replace(/[&<>"]/g, (c) => SAFE[c]);
const minus = (text) => text.replace(/-/g, "−");
const raised = (n) => String(n).replace(/[-0-9]/g, (c) => c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[+c]);
// One element as text; numbers are rounded to a tenth of a pixel. Text inside must be escaped already.
function tag(name, has, inner = "") {
  const words = Object.entries(has).map(([k, v]) => ` ${k}="${typeof v === "number" ? +v.toFixed(1) : v}"`);
  return `<${name}${words.join("")}>${inner}</${name}>`;
}
const line = (kind, d, more = {}) => tag("path", {class: kind, d, ...more});
// Only in front of the point: decimals are not grouped.
const grouped = (text) => text.replace(/^[-−]?\d{5,}(?=\.|$)/, (n) => n.replace(/\B(?=(\d{3})+$)/g, ","));
const words = (kind, x, y, anchor, text) => tag("text", {class: kind, x, y, "text-anchor": anchor}, escape(text));
const r = (v) => +v.toFixed(1);
function say(value) {
  if (value === 0) return "0";
  const size = Math.floor(Math.log10(Math.abs(value)) + 1e-9);
  if (size < -4 || size > 5) {
    const lead = Number((value / 10 ** size).toPrecision(3));
    return minus((lead === 1 ? "" : lead + " × ") + "10" + raised(size));
  }
  return minus(grouped(String(Number(value.toPrecision(4)))));
}

// ---- axes
function linearTicks(low, high, wanted) {
  const raw = (high - low) / wanted, unit = 10 ** Math.floor(Math.log10(raw));
  const step = unit * [1, 2, 2.5, 5, 10].find((s) => s * unit >= raw * 0.999);
  const places = Math.max(0, -Math.floor(Math.log10(step) + 1e-9) + (Math.abs(step / unit - 2.5) < 1e-6 ? 1 : 0));
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-6); i * step <= high + step * 1e-6; i++) {
    const value = i * step;
    const text = Math.abs(value) < step / 2 ? "0" : grouped(value.toFixed(places));
    ticks.push([value, places > 5 ? say(value) : minus(text)]);
  }
  return ticks;
}
function logTicks(low, high, wanted) {
  const first = Math.ceil(low - 1e-9), last = Math.floor(high + 1e-9), ticks = [];
  const fine = last - first < 2, stride = Math.max(1, Math.ceil((last - first + 1) / wanted));
  for (let e = first - 1; e <= last + 1; e++) {
    for (const lead of fine ? [1, 2, 5] : [1]) {
      const place = e + Math.log10(lead);
      if (place < low - 1e-9 || place > high + 1e-9 || (!fine && (e - last) % stride)) continue;
      ticks.push([place, last - first > 4 ? "10" + raised(e) : say(Number((lead * 10 ** e).toPrecision(3)))]);
    }
  }
  if (ticks.length > 1) return ticks;
  // Less than between two of these: steps of equal size are as good there.
  return linearTicks(10 ** low, 10 ** high, wanted).filter(([v]) => v > 0).map(([v, text]) => [Math.log10(v), text]);
}
// Seconds since 1970 at the starts of minutes, hours, days, months or years.
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const two = (n) => String(n).padStart(2, "0");
function when(seconds, fine) {
  const t = new Date(seconds * 1000), day = `${t.getUTCDate()} ${MONTHS[t.getUTCMonth()]} ${t.getUTCFullYear()}`;
  return fine ? `${day}, ${two(t.getUTCHours())}:${two(t.getUTCMinutes())}` : day;
}
// What a clock shows at a moment, and the moment when it shows that. A clock has, of each change, the moment and how
// many seconds it is ahead of universal time from then on; the first counts before, too.
const aheadOf = (clock, fits) => clock.reduce((found, change, i) => !i || fits(change) ? change[1] : found, 0);
const shownAt = (clock, moment) => moment + aheadOf(clock, ([start]) => moment >= start);
const momentOf = (clock, shown) => shown - aheadOf(clock, ([start, ahead]) => shown >= start + ahead);
function clockTicks(clock, low, high, wanted) {
  return timeTicks(shownAt(clock, low), shownAt(clock, high), wanted).map(([v, text]) => [momentOf(clock, v), text]);
}
function timeTicks(low, high, wanted) {
  const raw = (high - low) / wanted, ticks = [], day = 86400;
  const step = [60, 120, 300, 600, 900, 1800, 3600, 10800, 21600, 43200, day, 2 * day, 7 * day, 14 * day]
    .find((s) => s >= raw);
  if (raw <= 1) return linearTicks(low, high, wanted);
  if (step) {
    for (let v = Math.ceil(low / step) * step; v <= high; v += step) {
      const t = new Date(v * 1000), clock = step < day && v % day;
      ticks.push([v, clock ? `${two(t.getUTCHours())}:${two(t.getUTCMinutes())}` :
        `${t.getUTCDate()} ${MONTHS[t.getUTCMonth()]}`]);
    }
    return ticks;
  }
  const months = [1, 2, 3, 6, 12, 24, 60, 120, 240, 600, 1200].find((m) => m * 30.4 * day >= raw) || 6000;
  const start = new Date(low * 1000);
  let m = Math.floor((start.getUTCFullYear() * 12 + start.getUTCMonth()) / months) * months;
  for (;; m += months) {
    const v = Date.UTC(Math.floor(m / 12), m % 12, 1) / 1000;
    if (v > high) return ticks;
    if (v >= low) ticks.push([v, m % 12 ? MONTHS[m % 12] : String(Math.floor(m / 12))]);
  }
}
const known = (value) => typeof value === "number" && Number.isFinite(value);

// ---- one panel as SVG, and where its points are
const DASH = {"": "", dash: "6 3", dot: "1.5 3", dashdot: "7 3 1.5 3"};
let serial = 0;
function panelSvg(panel, hidden, width, flat) {
  const shown = panel.series.filter((s) => !hidden.has(s.name));
  const names = panel.series.some((s) => s.kind === "bars") ? panel.series.find((s) => s.kind === "bars").x : null;
  const tx = (v) => panel.x_log ? Math.log10(v) : v, ty = (v) => panel.y_log ? Math.log10(v) : v;
  const fit = (v, log) => known(v) && (!log || v > 0);
  // Ranges come from all series, hidden or not, so that axes stay where they are.
  let xs = [], ys = [];
  for (const s of panel.series) s.y.forEach((y, i) => {
    if (!fit(y, panel.y_log)) return;
    if (!names) { if (!fit(s.x[i], panel.x_log)) return; xs.push(tx(s.x[i])); }
    const e = s.error && known(s.error[i]) ? s.error[i] : 0;
    const under = s.lower && known(s.lower[i]) ? [s.lower[i]] : [];
    for (const v of [y - e, y + e, ...under]) if (fit(v, panel.y_log)) ys.push(ty(v));
    if (s.kind === "bars" || s.kind === "area") ys.push(ty(panel.y_log ? y : 0));
  });
  if (!ys.length) { xs = [0, 1]; ys = [0, 1]; }
  for (const mark of panel.marks) {
    if (mark.axis === "y") { if (fit(mark.value, panel.y_log)) ys.push(ty(mark.value)); }
    else if (!names && fit(mark.value, panel.x_log)) xs.push(tx(mark.value));
  }
  let [x0, x1] = names ? [-0.6, names.length - 0.4] : [Math.min(...xs), Math.max(...xs)];
  let [y0, y1] = panel.y_range ? panel.y_range.map(ty) : [Math.min(...ys), Math.max(...ys)];
  if (x1 - x0 < 1e-12) { x0 -= 0.5; x1 += 0.5; }
  if (y1 - y0 < 1e-12) { y0 -= Math.abs(y0) / 2 + 1e-9; y1 += Math.abs(y1) / 2 + 1e-9; }
  if (!panel.y_range) {
    const room = 0.06 * (y1 - y0), base = !panel.y_log && Math.min(...ys) === 0;
    y1 += room; if (!base) y0 -= room;
  }
  if (!names) { const room = 0.02 * (x1 - x0); x0 -= room; x1 += room; }
  const height = Math.round(Math.min(Math.max(width * (flat ? 0.5 : 0.66), 170), 300));
  const yticks = panel.y_log ? logTicks(y0, y1, 6) : linearTicks(y0, y1, 5);
  const left = 12 + 6.3 * Math.max(...yticks.map((t) => t[1].length), 1), right = 10, top = 8;
  const bottom = height - (panel.x_label ? 40 : 24);
  const px = (v) => left + (v - x0) / (x1 - x0) * (width - left - right);
  const py = (v) => bottom - (v - y0) / (y1 - y0) * (bottom - top);
  const id = "clip" + serial++;
  let out = tag("clipPath", {id}, tag("rect", {
    x: left - 4, y: top - 4, width: width - left - right + 8, height: bottom - top + 8,
  }));
  for (const [v, text] of yticks) {
    out += line("grid", `M${r(left)} ${r(py(v))}H${width - right}`) + words("tick", left - 6, py(v) + 4, "end", text);
  }
  const count = Math.max(3, Math.floor((width - left) / 62));
  const timed = panel.series.some((s) => s.time);
  const byClock = (low, high, wanted) => clockTicks(panel.clock || [], low, high, wanted);
  const numbers = panel.x_log ? logTicks : timed ? byClock : linearTicks;
  const xticks = names ? names.map((n, i) => [i, n]) : numbers(x0, x1, count);
  for (const [v, text] of xticks) {
    out += line("axis", `M${r(px(v))} ${bottom}v4`) + words("tick", px(v), bottom + 17, "middle", text);
  }
  out += line("axis", `M${r(left)} ${bottom}H${width - right}`);
  if (panel.x_label) out += words("label", (left + width - right) / 2, height - 5, "middle", panel.x_label);
  for (const mark of panel.marks) {
    if (mark.axis === "y") {
      const at = py(ty(mark.value));
      out += line("mark", `M${r(left)} ${r(at)}H${width - right}`);
      out += words("note", width - right, at - 4, "end", mark.text);
    } else {
      const at = px(tx(mark.value));
      out += line("mark", `M${r(at)} ${top}V${bottom}`) + words("note", at + 4, top + 8, "start", mark.text);
    }
  }
  let inner = "";
  const points = [], bars = shown.filter((s) => s.kind === "bars");
  const thick = 0.8 / Math.max(bars.length, 1), zero = py(panel.y_log ? y0 : Math.max(y0, 0));
  for (const s of shown) {
    const colour = `var(--${s.colour})`, at = [];
    let whiskers = "";
    s.y.forEach((y, i) => {
      if (!fit(y, panel.y_log) || (!names && !fit(s.x[i], panel.x_log))) { at.push(null); return; }
      const aside = s.kind === "bars" ? (bars.indexOf(s) - (bars.length - 1) / 2) * thick : 0;
      const x = px(names ? i + aside : tx(s.x[i])), error = s.error && known(s.error[i]) ? s.error[i] : 0;
      at.push([r(x), r(py(ty(y)))]);
      const low = s.kind === "band" ? s.lower[i] : null;
      points.push({x, y: py(ty(y)), key: s.x[i], value: y, low, error, name: s.name, colour, companion: !s.legend});
      if (error) {
        const low = fit(y - error, panel.y_log) ? py(ty(y - error)) : bottom, high = py(ty(y + error));
        const stroke = s.kind === "bars" ? "var(--ink)" : colour;
        whiskers += line("error", `M${r(x - 3)} ${r(low)}h6m-3 0V${r(high)}m-3 0h6`, {stroke});
      }
    });
    let path = "", pen = false;
    for (const p of at) { if (p) path += (pen ? "L" : "M") + p.join(" "); pen = !!p; }
    const solid = at.filter(Boolean);
    if (s.kind === "bars") {
      const wide = 0.9 * thick * (px(1) - px(0));
      for (const [x, y] of solid) inner += tag("rect", {
        x: x - wide / 2, y: Math.min(y, zero), width: wide, height: Math.abs(zero - y), fill: colour,
      });
    } else if (s.kind === "band" && solid.length) {
      const back = s.y.map((y, i) => at[i] && known(s.lower[i]) ? `L${at[i][0]} ${r(py(ty(s.lower[i])))}` : "");
      const d = path + back.reverse().join("") + "Z";
      inner += tag("path", {d, fill: "var(--paper)"}) + tag("path", {d, fill: colour, opacity: String(s.opacity)});
    } else if (s.kind === "area" && solid.length) {
      const close = `L${solid[solid.length - 1][0]} ${r(zero)}L${solid[0][0]} ${r(zero)}Z`;
      inner += tag("path", {d: path + close, fill: colour, opacity: s.colour === "truth" ? "1" : "0.55"});
    } else {
      if (s.kind === "line") inner += line("curve", path, {stroke: colour, "stroke-dasharray": DASH[s.dash]});
      if (s.dots || s.kind === "points") for (const [cx, cy] of solid) inner += dot(cx, cy, 3, colour, s.hollow);
    }
    inner += whiskers;
  }
  out += tag("g", {"clip-path": `url(#${id})`}, inner) + tag("g", {class: "hover"});
  const label = escape(panel.title || panel.y_label);
  const svg = tag("svg", {viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label}, out);
  return {svg, points, top, bottom};
}
function dot(cx, cy, radius, colour, hollow, stroke = colour) {
  return tag("circle", {cx, cy, r: radius, fill: hollow ? "var(--paper)" : colour, stroke});
}

// ---- values on hover or touch
const tip = document.getElementById("tip");
function place(x, y) {
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.max(6, Math.min(x + 14, innerWidth - box.width - 6)) + "px";
  tip.style.top = (y - box.height - 14 < 6 ? y + 18 : y - box.height - 14) + "px";
}
function hover(event, holder, drawn, panel) {
  const svg = holder.querySelector("svg"), box = svg.getBoundingClientRect();
  const x = (event.clientX - box.left) * svg.viewBox.baseVal.width / box.width;
  let near = null;
  for (const p of drawn.points) if (!near || Math.abs(p.x - x) < Math.abs(near.x - x)) near = p;
  if (!near) return;
  const at = drawn.points.filter((p) => p.key === near.key && !p.companion);
  const list = at.length ? at : [near];
  svg.querySelector(".hover").innerHTML = line("mark", `M${r(near.x)} ${drawn.top}V${drawn.bottom}`) +
    list.map((p) => known(p.low) ? "" : dot(p.x, p.y, 4, p.colour, false, "var(--paper)")).join("");
  const timed = panel.series.some((s) => s.time), fine = panel.series.some((s) => s.x.some((v) => v % 86400));
  const key = typeof near.key !== "number" ? near.key : timed ? when(shownAt(panel.clock || [], near.key), fine) :
    `${panel.x_label || "x"} = ${say(near.key)}`;
  tip.innerHTML = tag("b", {}, escape(key)) + list.map((p) => {
    const error = p.error ? " ± " + say(Number(p.error.toPrecision(2))) : "";
    const chip = tag("span", {class: "chip", style: `--chip:${p.colour}`});
    const from = known(p.low) ? say(p.low) + " to " : "";
    return tag("div", {}, `${chip}${escape(p.name)} ${tag("b", {}, from + say(p.value) + error)}`);
  }).join("");
  place(event.clientX, event.clientY);
}

// ---- charts
function swatch(s) {
  const colour = `var(--${s.colour})`, size = {width: 24, height: 10};
  let inner = "";
  if (s.kind === "bars" || s.kind === "area") inner = tag("rect", {...size, rx: 2, fill: colour});
  if (s.kind === "band") inner = tag("rect", {...size, rx: 2, fill: colour, opacity: String(s.opacity)});
  if (s.kind === "line") inner = line("curve", "M0 5H24", {stroke: colour, "stroke-dasharray": DASH[s.dash]});
  if (s.dots || s.kind === "points") inner += dot(12, 5, 3, colour, s.hollow);
  return tag("svg", {...size, "aria-hidden": "true"}, inner);
}
function build(figure, chart) {
  const legend = figure.querySelector(".legend"), grid = figure.querySelector(".panels"), hidden = new Set();
  const holders = chart.panels.map((panel) => {
    const cell = document.createElement("div");
    cell.className = "panel";
    cell.innerHTML = (panel.title ? tag("h4", {}, escape(panel.title)) : "") +
      (panel.y_label ? tag("p", {class: "ylabel"}, escape(panel.y_label)) : "") + "<div></div>";
    grid.append(cell);
    return cell.lastChild;
  });
  grid.style.setProperty("--columns", Math.min(chart.columns, chart.panels.length));
  const redraw = () => holders.forEach((holder, i) => {
    const width = Math.max(220, Math.floor(holder.clientWidth)), panel = chart.panels[i];
    const drawn = panelSvg(panel, hidden, width, chart.panels.length === 1);
    holder.innerHTML = drawn.svg;
    const leave = () => { tip.hidden = true; holder.querySelector(".hover").innerHTML = ""; };
    holder.onpointermove = holder.onpointerdown = (event) => hover(event, holder, drawn, panel);
    holder.onpointerleave = leave;
    if (drawn.svg.includes("NaN")) throw new Error(`a coordinate of ${chart.name} is no number`);
  });
  if (chart.panels.some((panel) => panel.series.filter((s) => s.legend).length > 1)) {
    const seen = new Set();
    for (const s of chart.panels.flatMap((panel) => panel.series)) {
      if (!s.legend || seen.has(s.name)) continue;
      seen.add(s.name);
      const button = document.createElement("button");
      button.type = "button";
      button.setAttribute("aria-pressed", "true");
      button.innerHTML = swatch(s) + escape(s.name);
      button.onclick = () => {
        hidden.has(s.name) ? hidden.delete(s.name) : hidden.add(s.name);
        button.setAttribute("aria-pressed", String(!hidden.has(s.name)));
        redraw();
      };
      legend.append(button);
    }
  }
  redraw();
  let width = grid.clientWidth;
  new ResizeObserver(() => {
    if (grid.clientWidth === width) return;
    width = grid.clientWidth;
    requestAnimationFrame(redraw);
  }).observe(grid);
}
const charts = JSON.parse(document.getElementById("charts").textContent);
let drawn = 0;
for (const figure of document.querySelectorAll("figure[data-chart]")) {
  try {
    build(figure, charts[figure.dataset.chart]);
    drawn++;
  } catch (error) {
    fail(error);
    figure.querySelector(".panels").textContent = "This figure could not be drawn; its numbers are in the tables.";
  }
}

// ---- dots that say what they are
for (const point of document.querySelectorAll("[data-tip]")) {
  const show = () => {
    const box = point.getBoundingClientRect();
    tip.textContent = point.dataset.tip;
    place(box.left, box.top);
  };
  point.onpointerenter = point.onpointerdown = point.onfocus = show;
  point.onpointerleave = point.onblur = () => { tip.hidden = true; };
}

// ---- light, dark, or as the system says
const modes = ["auto", "light", "dark"], toggle = document.getElementById("scheme");
let mode = "auto";
try { mode = localStorage.getItem("scheme") || "auto"; } catch { /* private windows have no memory */ }
const apply = () => {
  if (mode === "auto") delete root.dataset.scheme; else root.dataset.scheme = mode;
  toggle.textContent = {auto: "◐ Auto", light: "○ Light", dark: "● Dark"}[mode];
};
toggle.onclick = () => {
  mode = modes[(modes.indexOf(mode) + 1) % 3];
  try { localStorage.setItem("scheme", mode); } catch { /* as above */ }
  apply();
};
apply();

// ---- where the reader is
const links = new Map([...document.querySelectorAll("nav a")].map((a) => [a.hash.slice(1), a]));
const watch = new IntersectionObserver((entries) => {
  for (const entry of entries) if (entry.isIntersecting) {
    links.forEach((a) => a.removeAttribute("aria-current"));
    const link = links.get(entry.target.id);
    if (!link) continue;
    link.setAttribute("aria-current", "true");
    link.parentElement.scrollTo({left: link.offsetLeft - 40, behavior: "smooth"});
  }
}, {rootMargin: "-15% 0px -75% 0px"});
links.forEach((a, id) => { const section = document.getElementById(id); if (section) watch.observe(section); });

// For tests, and for whoever wonders: figures drawn of figures there are, and files fetched (none).
root.dataset.figures = `${drawn}/${document.querySelectorAll("figure[data-chart]").length}`;
root.dataset.fetched = performance.getEntriesByType("resource").filter((e) => !e.name.startsWith("data:")).length;
})();
"""
