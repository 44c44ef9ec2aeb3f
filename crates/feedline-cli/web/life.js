// Draws the life of a stretch of batches: a row for the trainer, one for each thread that prepares, and one for each batch.

"use strict";

const STAGE_COLOURS = 6;
/** Rows of threads and of batches at most; more would not be read. */
const MOST_ROWS = 24;
/** Pixels: a row, the space between groups of rows, and what is below them. */
const ROW = 22;
const GAP = 12;
const AXIS = 20;
/** Spans that are drawn narrower are found from as far beside them. */
const NARROW = 4;
/** The shortest time that is shown, in microseconds. */
const SHORTEST = 20;

/** All rows: a name, what was done there, and the group that they belong to. */
function rowsOfLife({ life, rows, waits }) {
  const batches = new Map(life.batches.map((batch) => [batch.batch, batch]));
  const named = ({ number, epoch }) => `batch ${number} of epoch ${epoch}`;
  const trainer = life.trainer.flatMap((batch) =>
    [["wait", batch.asked, batch.ready], ["hand-over", batch.ready, batch.received], ["step", batch.received, batch.done]].map(
      ([name, from, to]) => ({ from, to, colour: name, told: `${name} of ${named(batch)}` }),
    ),
  );
  const threads = [];
  life.samples.forEach((sample, number) => {
    const [wait, lay] = waits[number];
    const batch = batches.get(sample.batch);
    const place = batch ? `${named(batch)}, slot ${sample.slot}` : "a batch that was not delivered any more";
    const after = lay === null ? "" : `, lay ready ${ms(lay / 1e3)} until its batch was delivered`;
    threads[sample.thread] ??= [];
    sample.stages.forEach(([from, to], stage) => {
      const told = `${life.stages[stage]} of ${life.keys[number]} (${place}; waited ${ms(wait / 1e3)} to begin${after})`;
      threads[sample.thread].push({ from, to, colour: `stage-${stage % STAGE_COLOURS}`, told });
    });
  });
  const ofBatch = (row) => row.spans.map(({ stage, from, to }) => ({ from, to, colour: stage.replaceAll(" ", "-"), told: `${stage} of ${named(row)}` }));
  return [
    { group: "trainer", name: "trainer", spans: trainer },
    ...Array.from(threads, (spans, number) => ({ group: "threads", name: `thread ${number}`, spans: spans ?? [] })),
    ...rows.map((row) => ({ group: "batches", name: `epoch ${row.epoch} batch ${row.number}`, spans: ofBatch(row) })),
  ];
}

/** The life of batches over time. */
class Life {
  #canvas = document.getElementById("life");
  #told = document.getElementById("life-told");
  #rows = [];
  #gutter = 0;
  #whole = [0, 1];
  #shown = [0, 1];
  /** The row and the span that are told, and where the pointer is. */
  #row = 0;
  #span = null;
  #cursor = null;

  constructor() {
    const all = rowsOfLife(data);
    const of = (group) => all.filter((row) => row.group === group);
    this.#rows = ["trainer", "threads", "batches"].flatMap((group) => of(group).slice(0, MOST_ROWS));
    const left = ["threads", "batches"].filter((group) => of(group).length > MOST_ROWS);
    const words = left.map((group) => `${MOST_ROWS} of ${of(group).length} ${group} are shown.`);
    document.getElementById("life-left").textContent = words.join(" ");
    let y = 0;
    this.#rows.forEach((row, number) => {
      if (number > 0 && row.group !== this.#rows[number - 1].group) y += GAP;
      row.y = y;
      y += ROW;
      row.spans.sort((a, b) => a.from - b.from);
      // What is short lies upon what is long.
      row.drawn = [...row.spans].sort((a, b) => b.to - b.from - (a.to - a.from));
    });
    this.#canvas.style.height = `${y + AXIS}px`;
    const spans = this.#rows.flatMap((row) => row.spans);
    const end = largest(spans.map(({ to }) => to));
    const begin = spans.reduce((least, { from }) => Math.min(least, from), end);
    if (end > 0) this.#whole = [Math.max(0, begin), end];
    this.#shown = [...this.#whole];
    this.#canvas.dataset.spans = String(spans.length);
    this.#canvas.dataset.batches = String(this.#rows.filter(({ group }) => group === "batches").length);
    this.#listen();
  }

  #listen() {
    const canvas = this.#canvas;
    canvas.addEventListener("wheel", (event) => {
      // The page scrolls by the wheel, too: the plot takes it only from those who chose the plot, and as long as it has a use for it.
      const isChosen = document.activeElement === canvas || event.ctrlKey;
      if (!isChosen || (event.deltaY > 0 && this.#width() >= this.#whole[1] - this.#whole[0])) return;
      event.preventDefault();
      this.#zoom(event.deltaY > 0 ? 1.25 : 0.8, this.#time(event.offsetX));
    }, { passive: false });
    let dragged = null;
    canvas.addEventListener("pointerdown", (event) => (dragged = event.offsetX));
    window.addEventListener("pointerup", () => (dragged = null));
    canvas.addEventListener("pointermove", (event) => {
      if (dragged !== null) {
        this.#pan(((dragged - event.offsetX) / this.#across()) * this.#width());
        dragged = event.offsetX;
      }
      this.#point(event.offsetX, event.offsetY);
    });
    const keys = {
      "+": () => this.#zoom(0.8, this.#middle()),
      "=": () => this.#zoom(0.8, this.#middle()),
      "-": () => this.#zoom(1.25, this.#middle()),
      0: () => this.#fit(),
      PageUp: () => this.#pan(-this.#width() / 4),
      PageDown: () => this.#pan(this.#width() / 4),
      ArrowLeft: () => this.#step(-1),
      ArrowRight: () => this.#step(1),
      ArrowUp: () => this.#climb(-1),
      ArrowDown: () => this.#climb(1),
    };
    canvas.addEventListener("keydown", (event) => {
      if (!Object.hasOwn(keys, event.key) || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      this.#cursor = null;
      keys[event.key]();
    });
    document.getElementById("closer").addEventListener("click", () => this.#zoom(0.5, this.#middle()));
    document.getElementById("farther").addEventListener("click", () => this.#zoom(2, this.#middle()));
    document.getElementById("all").addEventListener("click", () => this.#fit());
  }

  #width() {
    return this.#shown[1] - this.#shown[0];
  }

  /** Pixels that the time has. */
  #across() {
    return Math.max(this.#canvas.clientWidth - this.#gutter, 1);
  }

  #time(x) {
    return this.#shown[0] + ((x - this.#gutter) / this.#across()) * this.#width();
  }

  /** What keys zoom around: the span that is told, or the middle. */
  #middle() {
    const [from, to] = this.#shown;
    const chosen = this.#span ? (this.#span.from + this.#span.to) / 2 : NaN;
    return chosen >= from && chosen <= to ? chosen : (from + to) / 2;
  }

  #fit() {
    this.#shown = [...this.#whole];
    this.draw();
  }

  #pan(by) {
    const width = this.#width();
    const from = Math.max(this.#whole[0], Math.min(this.#whole[1] - width, this.#shown[0] + by));
    this.#shown = [from, from + width];
    this.draw();
  }

  #zoom(factor, around) {
    const width = Math.min(this.#whole[1] - this.#whole[0], Math.max(SHORTEST, this.#width() * factor));
    const share = (around - this.#shown[0]) / this.#width();
    this.#shown = [around - share * width, around + (1 - share) * width];
    this.#pan(0);
  }

  /** Goes to the span before or behind the one that is told. */
  #step(by) {
    const { spans } = this.#rows[this.#row];
    const first = spans.findIndex(({ to }) => to > this.#shown[0]);
    const next = this.#span ? spans.indexOf(this.#span) + by : first;
    this.#choose(spans[Math.max(0, Math.min(spans.length - 1, next))] ?? null);
  }

  /** Goes to a row above or below, and there to what was done at the same time, or next. */
  #climb(by) {
    const time = this.#middle();
    this.#row = Math.max(0, Math.min(this.#rows.length - 1, this.#row + by));
    const { spans } = this.#rows[this.#row];
    this.#choose(spans.find(({ to }) => to > time) ?? spans.at(-1) ?? null);
  }

  #choose(span) {
    this.#span = span;
    this.#tell(span ? Math.max(span.from, 0) : this.#middle());
    const isSeen = !span || (span.to > this.#shown[0] && span.from < this.#shown[1]);
    this.#pan(isSeen ? 0 : (span.from + span.to - this.#shown[0] - this.#shown[1]) / 2);
  }

  /** Tells what is under the pointer. */
  #point(x, y) {
    const row = this.#rows.findIndex((row) => y >= row.y && y < row.y + ROW);
    const time = this.#time(x);
    const slack = (NARROW / this.#across()) * this.#width();
    this.#cursor = x >= this.#gutter ? time : null;
    this.#span = null;
    if (row >= 0) {
      this.#row = row;
      const isNear = ({ from, to }) => from - slack <= time && time < to + slack;
      const near = this.#rows[row].drawn.filter(isNear).reverse();
      this.#span = near.find(({ from, to }) => to - from < slack) ?? near.find(({ from, to }) => from <= time && time < to) ?? null;
      this.#tell(time);
    }
    this.draw();
  }

  #tell(time) {
    const [row, span] = [this.#rows[this.#row], this.#span];
    const what = span ? `${span.told}: ${ms((span.to - span.from) / 1e3)}` : "nothing";
    this.#told.textContent = `${(time / 1e3).toFixed(2)} ms, ${row.name}: ${what}`;
  }

  draw() {
    const { drawing, width, height } = prepare(this.#canvas);
    this.#gutter = Math.ceil(largest(this.#rows.map(({ name }) => drawing.measureText(name).width))) + 10;
    const [from, to] = this.#shown;
    const x = (time) => this.#gutter + ((time - from) / (to - from)) * this.#across();
    this.#drawAxis(drawing, x, width, height - AXIS);
    drawing.fillStyle = colour("ink");
    for (const { name, y } of this.#rows) drawing.fillText(name, 0, y + ROW / 2 + 4);
    drawing.save();
    drawing.beginPath();
    drawing.rect(this.#gutter, 0, width, height);
    drawing.clip();
    for (const row of this.#rows) {
      // The order of a batch is short and the only one; many short reads would look as if they were long.
      const least = row.group === "batches" ? 1.5 : 0.4;
      for (const span of row.drawn) {
        if (span.to < from || span.from > to) continue;
        const left = x(span.from);
        drawing.fillStyle = colour(span.colour);
        drawing.fillRect(left, row.y + 3, Math.max(x(span.to) - left, least), ROW - 6);
      }
    }
    if (this.#span) {
      const [left, right] = [x(this.#span.from), x(this.#span.to)];
      drawing.strokeStyle = colour("ink");
      drawing.lineWidth = 2;
      drawing.strokeRect(left - 1, this.#rows[this.#row].y + 2, Math.max(right - left, 1) + 2, ROW - 4);
    }
    drawing.fillStyle = colour("ink");
    if (this.#cursor !== null) drawing.fillRect(x(this.#cursor), 0, 1, height - AXIS);
    drawing.restore();
    this.#canvas.dataset.shown = String(to - from);
    this.#canvas.dataset.row = this.#rows[this.#row].name;
  }

  /** Lines at round times, as many as there is room to name. */
  #drawAxis(drawing, x, width, bottom) {
    const [from, to] = this.#shown;
    const rough = ((to - from) * 80) / this.#across();
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= rough) ?? rough;
    const digits = Math.max(0, -Math.floor(Math.log10(step / 1e3)));
    for (let time = Math.ceil(from / step) * step; time <= to; time += step) {
      const text = `${(time / 1e3).toFixed(digits)} ms`;
      drawing.fillStyle = colour("line");
      drawing.fillRect(Math.round(x(time)), 0, 1, bottom + 3);
      drawing.fillStyle = colour("faint");
      const left = x(time) - drawing.measureText(text).width / 2;
      drawing.fillText(text, Math.max(0, Math.min(left, width - drawing.measureText(text).width)), bottom + 15);
    }
  }
}

