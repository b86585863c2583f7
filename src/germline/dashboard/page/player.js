// The player: one film, or two side by side, with all that is needed to look closely.

import { announce, choice, el, figure, say, sentence, whole } from "./dom.js";
import { Projector, Reel } from "./film.js";

const SPEEDS = ["0.25", "0.5", "1", "2", "4", "8"].map((speed) => [speed, `${speed}×`]);

/**
 * A player in an element. `source(seed)` gives {path, body} of the film; `beside(seed)` that of the
 * film to compare with, or null where there is none; `about` gets the film's first record.
 */
export function makePlayer({ source, beside, about, title, besideTitle, fixed }, signal) {
  const screens = el("div", { class: "screens" });
  const place = el("section", { class: "player", "aria-label": "Player" });
  let round = null;  // the films now shown, given up when others are asked for
  let projector = null;
  const play = el("button", { class: "primary", text: "Play", onclick: toggle });
  const scrub = el("input", { type: "range", min: "0", max: "0", value: "0", step: "1",
    "aria-label": "Step", oninput: () => {
      const step = Number(scrub.value);  // read first: pausing sets it
      projector?.pause();
      projector?.seek(step);
    } });
  const speed = choice("Speed", SPEEDS, "1", (value) => {
    if (projector) projector.speed = Number(value);
  });
  const loop = el("input", { type: "checkbox", checked: true,
    onchange: () => { if (projector) projector.loop = loop.checked; } });
  const seed = el("input", { type: "number", min: "0", max: "4294967295", step: "1", value: "0",
    onchange: () => { if (seed.reportValidity() && round) start(); } });
  const both = el("input", { type: "checkbox", onchange: () => { if (round) start(); } });
  const label = (input, text) => el("label", { class: "choice" }, input, el("span", { text }));
  const more = el("div", { class: "bar" }, speed, label(loop, "Loop"),
    fixed ? null : el("label", { class: "choice" }, el("span", { text: "Seed" }), seed),
    beside ? label(both, "Beside its parent") : null);
  place.append(el("div", { class: "bar" }, play, scrub), more, screens);
  scrub.disabled = true;
  signal.addEventListener("abort", () => round?.abort());

  function toggle() {
    if (!round || projector.screens.some(({ reel }) => reel.error)) {
      if (seed.reportValidity()) start();
    } else if (projector.playing) projector.pause();
    else projector.play();
  }

  function start() {
    round?.abort();
    round = new AbortController();
    projector = new Projector(round.signal);
    projector.speed = Number(speed.querySelector("select").value);
    projector.loop = loop.checked;
    screens.replaceChildren();
    scrub.disabled = false;
    const shown = [show(source(Number(seed.value)), title, about)];
    if (beside && both.checked) shown.push(show(beside(Number(seed.value)), besideTitle, null));
    const own = projector;
    own.moved = () => {
      if (own !== projector) return;
      say(play, own.playing ? "Pause" : "Play");
      scrub.max = String(own.last);
      scrub.value = String(Math.floor(own.step));
      scrub.setAttribute("aria-valuetext", `step ${Math.floor(own.step)} of ${own.last}`);
      for (const update of shown) update();
    };
    own.play();
    announce("Playing");
  }

  function show({ path, body }, heading, tell) {
    const reel = new Reel();
    const canvas = el("canvas", { role: "img", "aria-label": `Film: ${heading}`,
      width: 320, height: 240 });
    const counts = el("p", { class: "counts" });
    const state = el("p", { class: "quiet" });
    const figureBox = el("figure", { class: "screen" }, canvas,
      el("figcaption", {}, el("strong", { text: heading }), counts, state));
    screens.append(figureBox);
    let [told, failed, ended] = [false, false, false];
    const own = projector;
    const screen = own.add(reel, canvas);
    const update = () => {
      const shot = screen.drawn;
      if (shot) say(counts, `score ${figure(shot.score)} · step ${whole(shot.step)}`);
      say(state, stateOf(reel, own));
      if (reel.about && !told) {
        told = true;
        tell?.(reel.about);
      }
      if (reel.error && !failed) {
        failed = true;
        own.pause();
        figureBox.append(sentence(new Error(reel.error)));
      }
      if (reel.end && !ended) {
        ended = true;
        announce(`${heading}: the film is complete, score ${figure(reel.end.score)}`);
      }
    };
    reel.read(path, body, round.signal);
    return update;
  }

  return { place, start };
}

function stateOf(reel, projector) {
  if (reel.error) return `${whole(reel.shots.length)} pictures`;
  if (reel.end) {
    const total = `${whole(reel.end.steps)} steps in all, score ${figure(reel.end.score)}`;
    return reel.end.cut ? `${total}; ${reel.end.cut}` : total;
  }
  if (!reel.shots.length) return "The first picture is being made…";
  const made = `made ${whole(reel.last)} steps so far, still going on`;
  return projector.waiting ? `${made}; waiting for more` : made;
}
