// Draws the batch log, and with life.js the life of a stretch of batches, from the numbers that the page carries.

const data = JSON.parse(document.getElementById("data").textContent);
let colours = new Map();
/** A colour of the style sheet. */
function colour(name) {
  if (!colours.has(name)) colours.set(name, getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim());
  return colours.get(name);
}
const largest = (values) => values.reduce((most, value) => Math.max(most, value), 0);
const ms = (value) => (value < 10 ? value.toFixed(2) : value.toFixed(1)) + " ms";

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
      ? `Batch ${number} of the log, epoch ${batch.epoch}: waited ${ms(batch.wait_ms)}, hand-over ${ms(batch.hand_over_ms)}, step ${ms(batch.step_ms)}`
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

const drawn = [new Log(), new Life()];
const drawAll = () => drawn.forEach((plot) => plot.draw());
window.addEventListener("resize", drawAll);
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  colours = new Map();
  drawAll();
});
drawAll();
