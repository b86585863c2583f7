// Elements made of data, and numbers as people read them.
// Text from the server is only ever set as text or as an attribute, never parsed as HTML.

const SVG = "http://www.w3.org/2000/svg";
const UNITS = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];

/** An element: attributes (`text`, `onclick`, … have their own meaning), then children. */
export function el(tag, attributes = {}, ...children) {
  return furnish(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
export function svg(tag, attributes = {}, ...children) {
  return furnish(document.createElementNS(SVG, tag), attributes, children);
}

function furnish(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") element.textContent = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** Set an element's text if it differs, so that what is selected in it stays selected. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Tell those who listen rather than look; used for changes of state, not for every number. */
export function announce(text) {
  say(document.getElementById("live"), text);
}

/** A labelled select of [value, words] pairs; `change` gets the value chosen. */
export function choice(label, pairs, value, change) {
  const select = el("select", { onchange: () => change(select.value) });
  for (const [key, words] of pairs) select.append(el("option", { value: key, text: words }));
  select.value = value;
  return el("label", { class: "choice" }, el("span", { text: label }), select);
}

/** A definition list of facts: [name, text or element] pairs, those without a value left out. */
export function facts(pairs) {
  const list = el("dl", { class: "facts" });
  for (const [name, value] of pairs) {
    if (value === null || value === undefined) continue;
    list.append(el("div", {}, el("dt", { text: name }), el("dd", {}, value)));
  }
  return list;
}

/** A table of texts and elements, in a region of its own that scrolls and can be focused. */
export function table(label, heads, rows, kind = "") {
  const head = el("tr", {}, heads.map((text) => el("th", { scope: "col", text })));
  const body = rows.map((cells) => el("tr", {}, cells.map((cell) => el("td", {}, cell))));
  return el("div", { class: `scroll ${kind}`, role: "region", "aria-label": label, tabindex: "0" },
    el("table", {}, el("thead", {}, head), el("tbody", {}, body)));
}

/** A sentence about what went wrong. */
export function sentence(error) {
  return el("p", { class: "problem", role: "alert", text: error.message || String(error) });
}

/** Say what went wrong in a place, once however often it is said; null when all is well again. */
export function tell(place, error) {
  const text = error ? error.message || String(error) : "";
  if (place.textContent === text) return;
  place.replaceChildren(...(error ? [sentence(error)] : []));
}

/** Four significant digits, thousands grouped; – for what is not there. */
export function figure(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e15)) return value.toExponential(3).replace("-", "−");
  const options = size >= 1000 ? { maximumFractionDigits: 0 } : { maximumSignificantDigits: 4 };
  return value.toLocaleString("en", options).replace("-", "−");
}

/** A number with its sign, as gains have. */
export function signed(value) {
  return (value > 0 ? "+" : "") + figure(value);
}

/** A whole number, thousands grouped. */
export function whole(value) {
  return value === null || value === undefined ? "–" : value.toLocaleString("en");
}

/** A large number in short: 1.2 M. */
export function large(value) {
  if (value === null || value === undefined) return "–";
  const unit = UNITS.find(([size]) => value >= size);
  if (!unit) return figure(value);
  const parts = value / unit[0];
  return `${parts.toFixed(parts < 100 ? 1 : 0)} ${unit[1]}`;
}

/** Seconds as people say them: 3 m 20 s. */
export function span(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 0.01) return `${figure(Number((seconds * 1000).toPrecision(2)))} ms`;
  if (seconds < 1) return `${figure(Math.round(seconds * 1000))} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  const s = Math.round(seconds);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} m ${s % 60} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} m`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

/** What it cost, to the cent where cents matter; – for nothing. */
export function money(value) {
  if (!value) return "–";
  const small = value < 1 ? { maximumSignificantDigits: 2 } : { maximumFractionDigits: 2 };
  return value.toLocaleString("en", value < 100 ? small : { maximumFractionDigits: 0 });
}
