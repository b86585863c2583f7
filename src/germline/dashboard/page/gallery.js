// Gallery: the best of every run, playing side by side.

import { filmPath, get, runPath } from "./api.js";
import { choice, el, figure, say, sentence, whole } from "./dom.js";
import { Projector, Reel } from "./film.js";
import { heading, idLink } from "./views.js";

const PICTURES = 300;
const shelf = { task: "" };  // kept while other views are shown

/** Show the champions of all runs, of one environment or of all. */
export async function showGallery(main, parts, signal) {
  const cards = el("ul", { class: "cards" });
  const bar = el("div", { class: "bar" });
  const count = el("p", { class: "quiet", role: "status" });
  const trouble = el("div");
  main.append(heading("Gallery"), bar, count, trouble, cards);
  let round = null;  // the cards now shown, given up when others are asked for
  signal.addEventListener("abort", () => round?.abort());
  await fill();

  async function fill() {
    round?.abort();
    round = new AbortController();
    const own = round.signal;
    try {
      const task = encodeURIComponent(shelf.task);
      const answer = await get(`/api/gallery?task=${task}&count=24`, own);
      if (!own.aborted) show(answer, own);
      trouble.replaceChildren();
    } catch (error) {
      if (!own.aborted) trouble.replaceChildren(sentence(error));
    }
  }

  function show(answer, own) {
    if (!bar.children.length) {
      const pairs = [["", "all"], ...answer.tasks.map((task) => [task, task])];
      bar.append(choice("Environment", pairs, shelf.task, (task) => {
        shelf.task = task;
        fill();
      }));
    }
    const many = answer.cards.length;
    const all = many < answer.total ? `${whole(many)} of ${whole(answer.total)}` : whole(many);
    say(count, many ? `${all} champions, at most three of a run` : "No run has a champion yet.");
    const queue = filmQueue(own);
    const watch = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) {
        target.dispatchEvent(new CustomEvent("seen", { detail: isIntersecting }));
      }
    }, { rootMargin: "100px" });
    own.addEventListener("abort", () => watch.disconnect());
    cards.replaceChildren(...answer.cards.map((card) => cardOf(card, queue, watch, own)));
  }
}

// Films are made one after another, as each costs the server a process.
function filmQueue(signal) {
  let last = Promise.resolve();
  return (work) => {
    last = last.then(() => (signal.aborted ? null : work()));
    return last;
  };
}

function cardOf(card, queue, watch, signal) {
  const name = `${card.task}, score ${figure(card.elite)}`;
  const screen = card.unplayable ? el("p", { class: "note", text: card.unplayable })
    : el("canvas", { role: "img", "aria-label": `Film: ${name}`, width: 320, height: 240 });
  const play = card.unplayable ? null : el("button", { class: "small" });
  const state = el("p", { class: "quiet" });
  const item = el("li", { class: "card" }, screen,
    el("h2", {}, idLink(card.run, card.id)),
    el("p", { class: "score" }, el("strong", { text: figure(card.elite) }), ` on ${card.task}`),
    el("p", { class: "quiet" }, el("a", { href: `#/run/${card.run}`, text: card.name }),
      ` · ${card.algorithm} · generation ${whole(card.generation)} · ${whole(card.genes)} genes`),
    state, el("div", { class: "bar" }, play,
      el("a", { href: `#/run/${card.run}/lineage/${card.id}`, text: "Lineage",
        "aria-label": `Lineage of ${card.id}` }),
      el("a", { href: runPath(card.run, "individuals", card.id, "genome"), download: true,
        text: "Download", "aria-label": `Download the genome ${card.id}` })));
  if (play) hang(card, { item, screen, play, state, name }, queue, watch, signal);
  return item;
}

function hang(card, { item, screen, play, state, name }, queue, watch, signal) {
  const projector = new Projector(signal);
  const reel = new Reel();
  // Who wants no motion sees the first picture until they ask for more.
  let wanted = !matchMedia("(prefers-reduced-motion: reduce)").matches;
  let [seen, asked] = [false, false];
  const making = () => (asked && !reel.shots.length ? "The film is being made…" : "");
  reel.changed = () => say(state, reel.error ?? making());
  projector.add(reel, screen);
  play.addEventListener("click", () => {
    wanted = !wanted;
    turn();
  });
  item.addEventListener("seen", ({ detail }) => {
    seen = detail;
    turn();
    if (!seen || asked) return;
    asked = true;
    reel.changed();
    queue(() => {
      if (seen) return reel.read(filmPath(card.run, card.id, 0, PICTURES), null, signal);
      asked = false;
      reel.changed();  // it was scrolled by; its turn comes when it is seen again
      return null;
    });
  });
  turn();
  watch.observe(item);

  function turn() {
    say(play, wanted ? "Pause" : "Play");
    play.setAttribute("aria-label", `${wanted ? "Pause" : "Play"} ${name}`);
    if (wanted && seen) projector.play();
    else projector.pause();
  }
}
