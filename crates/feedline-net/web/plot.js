// Draws produced and delivered samples per second over the last two minutes.
//
// In: points in time, with gaps where nothing is known. Out: an SVG that fills its place, in the colours of the style sheet.

const SVG = "http://www.w3.org/2000/svg";
/** Seconds that are shown. */
const SHOWN = 120;
/** A line is not drawn over a longer time in which nothing was seen. */
const GAP = 5;
const MARGIN = { left: 0, right: 1, top: 14, bottom: 18 };
const SERIES = ["delivered", "produced"];

function element(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

/** A round number that is not below `value`, and a round part of it. */
function scale(value) {
  const unit = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  for (const [most, step] of [[1, 0.5], [1.5, 0.5], [2, 0.5], [3, 1], [4, 1], [6, 2], [8, 2]]) {
    if (value <= most * unit) return { most: most * unit, step: step * unit };
  }
  return { most: 10 * unit, step: 5 * unit };
}

export class Plot {
  #svg;
  #format;
  #points = [];

  constructor(svg, format) {
    this.#svg = svg;
    this.#format = format;
    new ResizeObserver(() => this.draw(this.#points[this.#points.length - 1]?.at ?? 0)).observe(svg);
  }

  /** Adds a point: when, in seconds, and the rates. */
  add(point) {
    this.#points.push(point);
    this.#points = this.#points.filter(({ at }) => at >= point.at - SHOWN - GAP);
    this.draw(point.at);
  }

  /** Draws everything anew, up to a time. */
  draw(now) {
    const { width, height } = this.#svg.getBoundingClientRect();
    if (width === 0) return;
    const [left, right, top, bottom] = [MARGIN.left, width - MARGIN.right, MARGIN.top, height - MARGIN.bottom];
    const { most, step } = scale(Math.max(1, ...this.#points.flatMap((point) => SERIES.map((name) => point[name]))));
    const x = (at) => right - ((now - at) / SHOWN) * (right - left);
    const y = (rate) => bottom - (rate / most) * (bottom - top);
    const drawn = [];
    for (let rate = 0; rate <= most; rate += step) {
      drawn.push(element("line", { class: "grid", x1: left, x2: right, y1: y(rate), y2: y(rate) }));
      if (rate > 0) drawn.push(element("text", { x: left, y: y(rate) - 3 }, this.#format(rate)));
    }
    for (const [seconds, text, anchor] of [[SHOWN, "−2 min", "start"], [SHOWN / 2, "−1 min", "middle"], [0, "now", "end"]]) {
      drawn.push(element("text", { x: x(now - seconds), y: height - 4, "text-anchor": anchor }, text));
    }
    const stretches = this.#stretches(now);
    for (const stretch of stretches) {
      const begin = `M${x(stretch[0].at).toFixed(1)},${bottom}`;
      const line = stretch.map((point) => `L${x(point.at).toFixed(1)},${y(point.delivered).toFixed(1)}`).join("");
      const end = `L${x(stretch[stretch.length - 1].at).toFixed(1)},${bottom}Z`;
      drawn.push(element("path", { class: "area", d: begin + line + end }));
    }
    for (const name of SERIES) {
      const d = stretches.map((stretch) => {
        const places = stretch.map((point) => `${x(point.at).toFixed(1)},${y(point[name]).toFixed(1)}`);
        return `M${places.join("L")}`;
      });
      if (d.length > 0) drawn.push(element("path", { class: name, d: d.join("") }));
    }
    this.#svg.replaceChildren(...drawn);
    this.#describe();
  }

  /** Points that follow each other without a gap, as far as they are shown. */
  #stretches(now) {
    const stretches = [];
    let before = -Infinity;
    for (const point of this.#points.filter(({ at }) => at >= now - SHOWN)) {
      if (point.at - before > GAP) stretches.push([]);
      stretches[stretches.length - 1].push(point);
      before = point.at;
    }
    return stretches;
  }

  #describe() {
    const last = this.#points[this.#points.length - 1];
    if (last === undefined) return;
    const rates = SERIES.map((name) => `${name} ${this.#format(last[name])}`).join(", ");
    this.#svg.setAttribute("aria-label", `Samples per second in the last two minutes; now ${rates}`);
  }
}
