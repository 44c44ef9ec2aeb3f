// Draws the batch log and the life of a stretch of batches, from the numbers that the page carries.

"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
let colours = new Map();
/** A colour of the style sheet. */
function colour(name) {
  if (!colours.has(name)) colours.set(name, getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim());
  return colours.get(name);
}
const largest = (values) => values.reduce((most, value) => Math.max(most, value), 0);
const ms = (value) => (value < 10 ? value.toFixed(2) : value.toFixed(1)) + " ms";
const STAGES = 6;

/** Prepares a canvas for the pixels of the screen; gives its drawing and its size. */
function prepare(canvas) {
  const { width, height } = canvas.getBoundingClientRect();
  const density = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * density);
  canvas.height = Math.round(height * density);
  const drawing = canvas.getContext("2d");
  drawing.scale(density, density);
  drawing.clearRect(0, 0, width, height);
  drawing.font = "12px system-ui, sans-serif";
  return { drawing, width, height };
}

/** The batch log: a bar for each batch, of what it was waited for, handed over and worked on. */
class Log {
  #canvas = document.getElementById("log");
  #told = document.getElementById("log-told");
  #batches = data.batch_log;
  #chosen = -1;

  constructor() {
    this.#canvas.addEventListener("pointermove", (event) => this.#choose(this.#at(event.offsetX)));
    this.#canvas.addEventListener("pointerleave", () => this.#choose(-1));
    this.#canvas.addEventListener("keydown", (event) => {
      const steps = { ArrowRight: 1, ArrowLeft: -1, PageDown: 10, PageUp: -10 };
      if (!(event.key in steps)) return;
      event.preventDefault();
      this.#choose(Math.max(0, Math.min(this.#batches.length - 1, this.#chosen + steps[event.key])));
    });
  }

  #at(x) {
    return Math.min(this.#batches.length - 1, Math.floor((x / this.#canvas.clientWidth) * this.#batches.length));
  }

  #choose(number) {
    this.#chosen = number;
    const batch = this.#batches[number];
    this.#told.textContent = batch
      ? `Batch ${number} of epoch ${batch.epoch}: waited ${ms(batch.wait_ms)}, hand-over ${ms(batch.hand_over_ms)}, step ${ms(batch.step_ms)}`
      : "Move over the bars, or focus them and use the arrow keys.";
    this.draw();
  }

  draw() {
    const { drawing, width, height } = prepare(this.#canvas);
    const totals = this.#batches.map((batch) => batch.wait_ms + batch.hand_over_ms + batch.step_ms);
    const most = Math.max(largest(totals), 1e-6);
    const bar = width / Math.max(this.#batches.length, 1);
    const scale = (height - 18) / most;
    this.#batches.forEach((batch, number) => {
      let y = height;
      for (const [part, name] of [["step_ms", "step"], ["hand_over_ms", "hand-over"], ["wait_ms", "wait"]]) {
        const tall = batch[part] * scale;
        drawing.fillStyle = colour(name);
        drawing.globalAlpha = number === this.#chosen || this.#chosen < 0 ? 1 : 0.55;
        drawing.fillRect(number * bar, y - tall, Math.max(bar - (bar > 3 ? 1 : 0), 0.5), tall);
        y -= tall;
      }
    });
    drawing.globalAlpha = 1;
    drawing.fillStyle = colour("faint");
    drawing.fillText(ms(most), 2, 12);
  }
}

/** The life of batches: a row for the trainer and one for each thread that prepares, over time. */
class Life {
  #canvas = document.getElementById("life");
  #told = document.getElementById("life-told");
  #rows = [];
  #spans = [];
  #whole = [0, 1];
  #shown = [0, 1];
  #cursor = null;

  constructor() {
    const { trainer, samples, stages, keys } = data.life;
    const threads = largest(samples.map((sample) => sample.thread + 1));
    this.#rows = ["trainer", ...Array.from({ length: threads }, (_, number) => `thread ${number}`)];
    for (const batch of trainer) {
      const parts = [["wait", batch.asked, batch.ready], ["hand-over", batch.ready, batch.received], ["step", batch.received, batch.done]];
      for (const [name, from, to] of parts) this.#spans.push({ row: 0, name, from, to, colour: name, told: `${name} of a batch of epoch ${batch.epoch}` });
    }
    samples.forEach((sample, number) => {
      sample.stages.forEach(([from, to], stage) => {
        const told = `${stages[stage]} of ${keys[number]} (batch ${sample.batch}, slot ${sample.slot}), ${ms((sample.stages[0][0] - sample.asked) / 1e3)} after it was asked for`;
        this.#spans.push({ row: sample.thread + 1, name: stages[stage], from, to, colour: `stage-${stage % STAGES}`, told });
      });
    });
    const end = largest(this.#spans.map(({ to }) => to));
    const begin = this.#spans.reduce((least, { from }) => Math.min(least, from), end);
    if (end > 0) this.#whole = [Math.max(0, begin), end];
    this.#shown = [...this.#whole];
    this.#listen();
  }

  #listen() {
    const canvas = this.#canvas;
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.#zoom(event.deltaY > 0 ? 1.25 : 0.8, this.#time(event.offsetX));
    }, { passive: false });
    let dragged = null;
    canvas.addEventListener("pointerdown", (event) => (dragged = event.offsetX));
    window.addEventListener("pointerup", () => (dragged = null));
    canvas.addEventListener("pointermove", (event) => {
      if (dragged !== null) {
        this.#pan(((dragged - event.offsetX) / canvas.clientWidth) * (this.#shown[1] - this.#shown[0]));
        dragged = event.offsetX;
      }
      this.#point(this.#time(event.offsetX), event.offsetY);
    });
    canvas.addEventListener("keydown", (event) => {
      const width = this.#shown[1] - this.#shown[0];
      const middle = (this.#shown[0] + this.#shown[1]) / 2;
      const keys = {
        "+": () => this.#zoom(0.8, middle),
        "=": () => this.#zoom(0.8, middle),
        "-": () => this.#zoom(1.25, middle),
        0: () => this.#fit(),
        ArrowLeft: () => this.#pan(-width / 8),
        ArrowRight: () => this.#pan(width / 8),
      };
      if (!(event.key in keys)) return;
      event.preventDefault();
      keys[event.key]();
      this.#point((this.#shown[0] + this.#shown[1]) / 2, 4);
    });
    document.getElementById("closer").addEventListener("click", () => this.#zoom(0.5, (this.#shown[0] + this.#shown[1]) / 2));
    document.getElementById("farther").addEventListener("click", () => this.#zoom(2, (this.#shown[0] + this.#shown[1]) / 2));
    document.getElementById("all").addEventListener("click", () => this.#fit());
  }

  #time(x) {
    return this.#shown[0] + (x / this.#canvas.clientWidth) * (this.#shown[1] - this.#shown[0]);
  }

  #fit() {
    this.#shown = [...this.#whole];
    this.draw();
  }

  #pan(by) {
    const width = this.#shown[1] - this.#shown[0];
    const from = Math.max(this.#whole[0], Math.min(this.#whole[1] - width, this.#shown[0] + by));
    this.#shown = [from, from + width];
    this.draw();
  }

  #zoom(factor, around) {
    const width = Math.min(this.#whole[1] - this.#whole[0], Math.max(20, (this.#shown[1] - this.#shown[0]) * factor));
    const share = (around - this.#shown[0]) / (this.#shown[1] - this.#shown[0]);
    this.#shown = [around - share * width, around + (1 - share) * width];
    this.#pan(0);
  }

  /** Tells what happens at a time, in the row at a height. */
  #point(time, y) {
    const row = Math.floor(y / (this.#canvas.clientHeight / this.#rows.length));
    const found = this.#spans.find((span) => span.row === row && span.from <= time && time < span.to);
    this.#cursor = time;
    const at = `${(time / 1e3).toFixed(2)} ms, ${this.#rows[row] ?? ""}`;
    this.#told.textContent = found ? `${at}: ${found.told}: ${ms((found.to - found.from) / 1e3)}` : `${at}: nothing`;
    this.draw();
  }

  draw() {
    const { drawing, width, height } = prepare(this.#canvas);
    const tall = height / this.#rows.length;
    const [from, to] = this.#shown;
    const x = (time) => ((time - from) / (to - from)) * width;
    for (const span of this.#spans) {
      if (span.to < from || span.from > to) continue;
      const left = x(span.from);
      drawing.fillStyle = colour(span.colour);
      drawing.fillRect(left, span.row * tall + 2, Math.max(x(span.to) - left, 0.6), tall - 4);
    }
    this.#rows.forEach((name, row) => {
      const y = row * tall + 3;
      drawing.fillStyle = colour("sheet");
      drawing.fillRect(2, y, drawing.measureText(name).width + 6, 15);
      drawing.fillStyle = colour("ink");
      drawing.fillText(name, 5, y + 12);
    });
    if (this.#cursor !== null) drawing.fillRect(x(this.#cursor), 0, 1, height);
    drawing.fillStyle = colour("faint");
    drawing.fillText(`${((to - from) / 1e3).toFixed(1)} ms shown`, width - 110, height - 4);
    this.#canvas.dataset.spans = String(this.#spans.length);
    this.#canvas.dataset.shown = String(to - from);
  }
}

const drawn = [new Log(), new Life()];
const drawAll = () => drawn.forEach((plot) => plot.draw());
window.addEventListener("resize", drawAll);
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  colours = new Map();
  drawAll();
});
drawAll();
