// A cloud of very many points: Plotly draws the axes and zooms, a canvas below it has the points.
// Plotly's own fast scatter compiles code at run time, which the content policy forbids.

import { colours, draw, plain } from "./charts.js";
import { el, figure } from "./dom.js";

const REACH = 12;  // pixels from a point within which it is meant
const TWICE = 300;  // milliseconds within which two clicks are one double click

/** A cloud in a place of its own; `open(index)` is called for the point clicked, if it `opens`. */
export class Cloud {
  constructor(label, { opens, open }) {
    this.opens = opens;
    this.open = open;
    this.ended = new AbortController();
    this.seen = {};
    this.canvas = el("canvas", { "aria-hidden": "true" });
    this.chart = el("div", { class: "chart tall", role: "img", "aria-label": label });
    this.tip = el("p", { class: "tip", "aria-hidden": "true", hidden: true });
    this.place = el("div", { class: "cloud" }, this.canvas, this.chart, this.tip);
    this.data = { x: [], y: [], ids: [] };
    this.listening = false;
  }

  /** Show x and y of individuals; `names` are the axes' titles, `marked` the champion's points. */
  async show(data, names, marked) {
    this.data = data;
    this.names = names;
    const ranges = { x: this.widest(names.x, data.x), y: this.widest(names.y, data.y) };
    const view = `${names.x} ${names.y} ${ranges.x} ${ranges.y}`;
    await draw(this.chart, (now) => ({
      traces: [{ type: "scatter", mode: "markers", name: "champion", hoverinfo: "skip",
        x: marked.map((index) => data.x[index]), y: marked.map((index) => data.y[index]),
        marker: { symbol: "star", size: 15, color: now.second,
          line: { color: now.ground, width: 1.5 } } }],
      layout: { xaxis: { title: names.x, range: ranges.x, showgrid: false, ticks: "outside" },
        yaxis: { title: names.y, range: ranges.y, showgrid: false, ticks: "outside" },
        showlegend: marked.length > 0, hovermode: false },
    }), view);
    if (this.ended.signal.aborted) return;
    this.listen();
    this.paint();
  }

  // So that generations can be compared, an axis never shrinks.
  widest(name, values) {
    const [low, high] = reach(values);
    const [before, after] = this.seen[name] ?? [low, high];
    this.seen[name] = [Math.min(low, before), Math.max(high, after)];
    return this.seen[name];
  }

  listen() {
    if (this.listening) return;
    this.listening = true;
    for (const event of ["plotly_afterplot", "plotly_relayout", "plotly_relayouting"]) {
      this.chart.on(event, () => this.paint());
    }
    this.place.addEventListener("pointermove", (event) => this.hint(event));
    this.place.addEventListener("pointerleave", () => { this.tip.hidden = true; });
    let from = null;
    let opening = null;
    let before = -TWICE;
    // Caught on the way down, as Plotly keeps these events to itself.
    this.place.addEventListener("pointerdown", (event) => {
      from = event.timeStamp - before > TWICE ? event : null;
      before = event.timeStamp;
      clearTimeout(opening);
    }, true);
    document.addEventListener("pointerup", (event) => {
      const still = from
        && Math.hypot(event.clientX - from.clientX, event.clientY - from.clientY) < 4;
      from = null;
      const index = still ? this.nearest(event) : -1;
      // It may become a double click, which shows all again.
      if (index >= 0 && this.opens(index)) opening = setTimeout(() => {
        if (this.opens(index)) this.open(index);
      }, TWICE);
    }, { capture: true, signal: this.ended.signal });
  }

  /** Stop listening; the cloud is no longer shown. */
  leave() {
    this.ended.abort();
    this.opens = () => false;
    this.data = { x: [], y: [], ids: [] };
  }

  frame() {
    const { xaxis, yaxis } = this.chart._fullLayout;
    return { left: xaxis._offset, top: yaxis._offset, width: xaxis._length, height: yaxis._length,
      x: xaxis.range.map(Number), y: yaxis.range.map(Number) };
  }

  paint() {
    if (!this.chart._fullLayout?.xaxis) return;
    const frame = this.frame();
    const scale = globalThis.devicePixelRatio || 1;
    const [width, height] = [frame.width * scale, frame.height * scale].map(Math.round);
    Object.assign(this.canvas.style, { left: `${frame.left}px`, top: `${frame.top}px`,
      width: `${frame.width}px`, height: `${frame.height}px` });
    if (this.canvas.width !== width) this.canvas.width = width;
    if (this.canvas.height !== height) this.canvas.height = height;
    const { x, y } = this.data;
    const context = this.canvas.getContext("2d");
    const size = Math.max(1.6, Math.min(6, 900 / Math.sqrt(x.length + 1) / 3)) * scale;
    const [across, down] = [width / (frame.x[1] - frame.x[0]), height / (frame.y[1] - frame.y[0])];
    context.clearRect(0, 0, width, height);
    context.fillStyle = colours().accent;
    context.globalAlpha = Math.max(0.18, Math.min(0.75, 60 / Math.sqrt(x.length + 1)));
    for (let index = 0; index < x.length; index += 1) {
      if (x[index] === null || y[index] === null) continue;
      const px = (x[index] - frame.x[0]) * across;
      const py = height - (y[index] - frame.y[0]) * down;
      context.fillRect(px - size / 2, py - size / 2, size, size);
    }
  }

  nearest(event) {
    if (!this.chart._fullLayout?.xaxis) return -1;
    const frame = this.frame();
    const box = this.chart.getBoundingClientRect();
    const px = event.clientX - box.left - frame.left;
    const py = event.clientY - box.top - frame.top;
    if (px < 0 || py < 0 || px > frame.width || py > frame.height) return -1;
    const { x, y } = this.data;
    const [across, down] = [frame.width / (frame.x[1] - frame.x[0]),
      frame.height / (frame.y[1] - frame.y[0])];
    let [best, found] = [REACH * REACH, -1];
    for (let index = 0; index < x.length; index += 1) {
      if (x[index] === null || y[index] === null) continue;
      const dx = (x[index] - frame.x[0]) * across - px;
      const dy = frame.height - (y[index] - frame.y[0]) * down - py;
      const distance = dx * dx + dy * dy;
      if (distance < best) [best, found] = [distance, index];
    }
    return found;
  }

  hint(event) {
    const index = this.nearest(event);
    this.tip.hidden = index < 0;
    this.place.classList.toggle("over", index >= 0 && this.opens(index));
    if (index < 0) return;
    const { x, y, ids } = this.data;
    this.tip.textContent =
      `${ids[index]} · ${this.names.x} ${figure(x[index])} · ${this.names.y} ${figure(y[index])}`;
    const box = this.place.getBoundingClientRect();
    const left = Math.min(event.clientX - box.left + 14, box.width - this.tip.offsetWidth - 4);
    this.tip.style.left = `${Math.max(0, left)}px`;
    this.tip.style.top = `${event.clientY - box.top + 16}px`;
  }
}

/** A small histogram of numbers, in so many bins. */
export function drawHistogram(place, values, name, bins = 40) {
  const there = values.filter((value) => value !== null);
  const [low, high] = reach(there, 0);
  const counts = new Array(bins).fill(0);
  for (const value of there) {
    counts[Math.min(bins - 1, Math.floor(((value - low) / (high - low)) * bins))] += 1;
  }
  const step = (high - low) / bins;
  return draw(place, (now) => ({
    traces: [{ type: "bar", x: counts.map((_, bin) => low + (bin + 0.5) * step), y: counts,
      marker: { color: now.accent },
      hovertemplate: `%{y} at ${plain(name)} %{x:.4g}<extra></extra>` }],
    layout: { xaxis: { title: name }, yaxis: { title: "evaluations" }, bargap: 0.05,
      showlegend: false },
  }), `${low} ${high}`);
}

function reach(values, margin = 0.04) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (value === null) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  if (low > high) return [0, 1];
  const room = high > low ? (high - low) * margin : Math.abs(low) * 0.05 || 0.5;
  return [low - room, high + room];
}
