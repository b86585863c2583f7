// The page: which view is shown, by the part of the address after #.

import { answers, keptPaths, login } from "./api.js";
import { dropCharts, loadCharts } from "./charts.js";
import { announce, el, sentence } from "./dom.js";
import { showFile } from "./file.js";
import { showGallery } from "./gallery.js";
import { showIndividual } from "./individual.js";
import { showLineage } from "./lineage.js";
import { showPopulation } from "./population.js";
import { showRun } from "./run.js";
import { showRuns } from "./runs.js";
import { heading } from "./views.js";

const MOST = 32 * 1024 * 1024;  // bytes of a genome file, as the server takes them
const main = document.getElementById("main");
let current = null;
let opened = null;

const ROUTES = [
  [/^$/, showRuns],
  [/^gallery$/, showGallery],
  [/^file$/, (page, parts, signal) => showFile(page, opened, signal)],
  [/^run\/([0-9a-f]{16})$/, showRun],
  [/^run\/([0-9a-f]{16})\/(population)(?:\/(\d+))?$/, showPopulation],
  [/^run\/([0-9a-f]{16})\/(lineage)(?:\/([0-9a-f]{4,16}))?$/, showLineage],
  [/^run\/([0-9a-f]{16})\/(individual)\/([0-9a-f]{4,16})$/, showIndividual],
];

async function go() {
  const address = location.hash.replace(/^#\/?/, "");
  if (address === "main") return;
  if (answers && address === "") {
    const kept = keptPaths("/api/runs/").map((path) => path.split("/")[3]);
    if (kept.length) location.replace(`#/run/${kept[0]}`);
    return;
  }
  await show(async (page, signal) => {
    for (const [pattern, view] of ROUTES) {
      const found = address.match(pattern);
      if (found) return view(page, found.slice(1), signal);
    }
    throw new Error("There is no such page.");
  });
}

async function show(view) {
  current?.abort();
  current = new AbortController();
  const { signal } = current;
  dropCharts(main);
  markPages();
  const loading = el("p", { class: "quiet", text: "Loading…" });
  const waiting = setTimeout(() => {
    announce("Loading");
    page.append(loading);
  }, 400);
  // A view puts its parts in place at once; its heading then takes the focus.
  const page = el("div", { class: "view" });
  main.replaceChildren(page);
  const focus = new MutationObserver(() => {
    const title = page.querySelector("h1");
    if (!title) return;
    focus.disconnect();
    clearTimeout(waiting);
    loading.remove();
    announce("");
    scrollTo(0, 0);
    title.focus({ preventScroll: true });
    requestIdleCallback(() => loadCharts().catch(() => {}));  // who draws says what is wrong
  });
  focus.observe(page, { childList: true });
  try {
    await view(page, signal);
  } catch (error) {
    if (signal.aborted || error.status === 401) return;
    if (!page.querySelector("h1")) page.append(heading("Not shown"));
    page.append(sentence(error));
  } finally {
    clearTimeout(waiting);
    loading.remove();
  }
}

function markPages() {
  for (const link of document.querySelectorAll("#pages a")) {
    const now = location.hash || "#/";
    const here = link.hash === "#/" ? now === "#/" || now.startsWith("#/run/") : link.hash === now;
    if (here) link.setAttribute("aria-current", link.hash === now ? "page" : "true");
    else link.removeAttribute("aria-current");
  }
}

function askToken() {
  if (document.getElementById("token")) return;
  show(async (page) => {
    const token = el("input", { type: "password", id: "token", required: true,
      autocomplete: "current-password" });
    const trouble = el("p", { class: "problem", role: "alert", hidden: true });
    const form = el("form", { class: "login", onsubmit: async (event) => {
      event.preventDefault();
      trouble.hidden = true;
      try {
        await login(token.value);
        go();
      } catch (error) {
        trouble.textContent = error.message;
        trouble.hidden = false;
        token.focus();
      }
    } }, el("label", { for: "token", text: "Token" }), token,
    el("button", { class: "primary", text: "Log in" }), trouble);
    const text = "This dashboard asks for a token; whoever started it can tell you.";
    page.append(heading("Log in"), el("p", { text }), form);
  });
}

function openFile(file) {
  if (!file) return;
  if (file.size > MOST) {
    show(async (page) => {
      page.append(heading(file.name), sentence(new Error(
        `This file has ${Math.ceil(file.size / 1048576)} MiB; a genome file has at most 32 MiB.`)));
    });
    return;
  }
  opened = file;
  if (location.hash === "#/file") go();
  else location.hash = "#/file";
}

function takeFiles() {
  const input = document.getElementById("file");
  input.addEventListener("change", () => { openFile(input.files[0]); input.value = ""; });
  const drop = document.getElementById("drop");
  const carries = (event) => event.dataTransfer?.types.includes("Files");
  document.addEventListener("dragover", (event) => {
    if (!carries(event)) return;
    event.preventDefault();
    drop.hidden = false;
  });
  document.addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) drop.hidden = true;
  });
  document.addEventListener("drop", (event) => {
    drop.hidden = true;
    if (!carries(event)) return;
    event.preventDefault();
    openFile(event.dataTransfer.files[0]);
  });
}

if (answers) {
  for (const id of ["pages", "opener"]) document.getElementById(id).hidden = true;
} else {
  takeFiles();
  document.addEventListener("login-needed", askToken);
}
addEventListener("hashchange", go);
// The way to where one is: shown anew, as after an error.
document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href^='#/']");
  if (link && link.hash === location.hash) go();
});
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
go();
