// Looks at the node, and how fast its numbers grow.
//
// In: what the node says of itself, time after time. Out: growth per second over the last ten seconds: jobs get samples by the
// segment, so a shorter time would show jumps. `feedline top` does the same.

/** How far back a rate looks, in seconds. */
const OVER = 10;

/** The number at a path of names; 0 if there is none. */
export function number(entry, path) {
  const found = path.split(".").reduce((value, name) => value?.[name], entry);
  return typeof found === "number" ? found : 0;
}

export class Looks {
  #looks = [];

  /** Takes another look, and forgets those that no rate needs any more. */
  add(stats) {
    if (this.#looks.length > 0 && stats.seconds < this.newest.seconds) {
      // Another node: nothing of the last one grows any more.
      this.#looks = [];
    }
    this.#looks.push(stats);
    while (this.#looks.length > 1 && this.#looks[1].seconds <= stats.seconds - OVER) {
      this.#looks.shift();
    }
  }

  /** The newest look. */
  get newest() {
    return this.#looks[this.#looks.length - 1];
  }

  /** Whether there is a look to compare the newest with. */
  get hasRates() {
    return this.#looks.length > 1;
  }

  /** How much a number grows each second, of the entry of a list whose `name` is that of `entry`. */
  rate(list, name, entry, path) {
    const newest = { seconds: this.newest.seconds, value: number(entry, path) };
    let oldest = newest;
    for (let place = this.#looks.length - 2; place >= 0; place -= 1) {
      const look = this.#looks[place];
      const same = look[list].find((other) => other[name] === entry[name]);
      const value = same && number(same, path);
      // It was not there, or has begun anew since then.
      if (value === undefined || value > oldest.value) break;
      oldest = { seconds: look.seconds, value };
    }
    const seconds = newest.seconds - oldest.seconds;
    return seconds > 0 ? (newest.value - oldest.value) / seconds : 0;
  }
}
