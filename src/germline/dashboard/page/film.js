// Films: a stream of records read into a reel, and reels shown on canvases at a common step.

import { filmStream } from "./api.js";

const REST = 0.8;  // seconds that the last picture stands before a loop begins again

/** What has arrived of a film: its pictures stay compressed until they are drawn. */
export class Reel {
  constructor() {
    this.about = null;
    this.shots = [];
    this.end = null;
    this.error = null;
    this.changed = () => {};
  }

  get done() {
    return this.end !== null || this.error !== null;
  }

  get last() {
    return this.shots.length ? this.shots[this.shots.length - 1].step : 0;
  }

  /** The pace that looks natural, in steps per second. */
  get pace() {
    return this.shots.length ? this.shots[0].pace || 30 : 30;
  }

  /** The number of the picture that is seen at a step. */
  at(step) {
    let [low, high] = [0, this.shots.length - 1];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.shots[middle].step <= step) low = middle;
      else high = middle - 1;
    }
    return high < 0 ? -1 : low;
  }

  /** Read the film of a path (or of a genome file's bytes) to its end. */
  async read(path, body, signal) {
    try {
      const reader = (await filmStream(path, body, signal)).getReader();
      signal.addEventListener("abort", () => reader.cancel().catch(() => {}), { once: true });
      for await (const record of records(reader)) this.take(record);
      if (!this.done) this.error = "The film broke off before its end.";
    } catch (error) {
      if (signal.aborted) return;
      this.error = error.message;
    }
    this.changed();
  }

  take([header, picture]) {
    if (header.kind === "about") this.about = header;
    else if (header.kind === "shot") this.shots.push({ ...header, blob: new Blob([picture]) });
    else if (header.kind === "end") this.end = header;
    else if (header.kind === "error") this.error = header.detail;
    this.changed();
  }
}

async function* records(reader) {
  let buffer = new Uint8Array(1 << 16);
  let [start, end] = [0, 0];
  const text = new TextDecoder();
  const more = async (count) => {
    while (end - start < count) {
      const { done, value } = await reader.read();
      if (done) return false;
      if (end + value.length > buffer.length) {
        const size = Math.max(buffer.length, 2 * (end - start + value.length), count);
        const wider = new Uint8Array(size);
        wider.set(buffer.subarray(start, end));
        [buffer, start, end] = [wider, 0, end - start];
      }
      buffer.set(value, end);
      end += value.length;
    }
    return true;
  };
  while (await more(8)) {
    const view = new DataView(buffer.buffer, start);
    const [head, body] = [view.getUint32(0), view.getUint32(4)];
    if (!(await more(8 + head + body))) return;
    const header = JSON.parse(text.decode(buffer.subarray(start + 8, start + 8 + head)));
    const picture = buffer.slice(start + 8 + head, start + 8 + head + body);
    start += 8 + head + body;
    yield [header, picture];
  }
}

/** Shows reels, each on its canvas, all at the same step of their episodes. */
export class Projector {
  constructor(signal) {
    this.screens = [];
    this.step = 0;
    this.speed = 1;
    this.loop = true;
    this.playing = false;
    this.waiting = false;
    this.rest = 0;
    this.then = null;
    this.moved = () => {};
    this.signal = signal;
    signal.addEventListener("abort", () => { this.playing = false; });
  }

  /** Show a reel on a canvas. */
  add(reel, canvas) {
    const screen = { reel, canvas, drawn: null, busy: false };
    this.screens.push(screen);
    const before = reel.changed;
    reel.changed = () => {
      before();
      if (reel.shots.length === 1) this.draw();
      this.moved();
    };
    this.draw();
    return screen;
  }

  /** The last step that has arrived of any film. */
  get last() {
    return Math.max(0, ...this.screens.map((screen) => screen.reel.last));
  }

  play() {
    if (this.playing || this.signal.aborted) return;
    if (this.screens.every(({ reel }) => reel.done) && this.step >= this.last) this.step = 0;
    this.playing = true;
    this.then = null;
    requestAnimationFrame((now) => this.tick(now));
    this.moved();
  }

  pause() {
    this.playing = false;
    this.moved();
  }

  seek(step) {
    this.step = step;
    this.rest = 0;
    this.draw();
    this.moved();
  }

  tick(now) {
    if (!this.playing) return;
    // A tab that slept for long does not leap ahead.
    const passed = this.then === null ? 0 : Math.min(0.25, (now - this.then) / 1000);
    this.then = now;
    const reels = this.screens.map((screen) => screen.reel);
    const pace = reels[0]?.pace ?? 30;
    // What is still being made is waited for; so two films stay side by side.
    const unfinished = reels.filter((reel) => !reel.done);
    const made = Math.min(...unfinished.map((reel) => reel.last), this.last);
    const next = this.step + passed * pace * this.speed;
    const done = unfinished.length === 0;
    this.waiting = !done && next > made;
    this.step = Math.min(next, Math.max(made, this.step));
    if (done && this.step >= this.last) this.finish(passed);
    this.draw();
    this.moved();
    requestAnimationFrame((later) => this.tick(later));
  }

  finish(passed) {
    this.step = this.last;
    this.rest += passed;
    if (this.rest < REST) return;
    this.rest = 0;
    if (this.loop) this.step = 0;
    else this.playing = false;
  }

  draw() {
    for (const screen of this.screens) this.show(screen);
  }

  async show(screen) {
    const index = screen.reel.at(this.step);
    const shot = screen.reel.shots[index];
    if (!shot || screen.drawn === shot || screen.busy) return;
    screen.busy = true;
    try {
      const picture = await createImageBitmap(shot.blob);
      const { canvas } = screen;
      if (canvas.width !== picture.width) canvas.width = picture.width;
      if (canvas.height !== picture.height) canvas.height = picture.height;
      canvas.style.setProperty("--ratio", picture.width / picture.height);
      canvas.classList.toggle("coarse", picture.width < 240);
      canvas.getContext("2d").drawImage(picture, 0, 0);
      picture.close();
    } catch {
      screen.reel.error ??= "A picture of the film cannot be read.";
    }
    screen.drawn = shot;
    screen.busy = false;
    if (this.playing || this.signal.aborted) return;
    this.moved();
    this.show(screen);
  }
}
