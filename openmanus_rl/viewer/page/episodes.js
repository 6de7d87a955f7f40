// The list of episodes: filters above, and rows that are fetched as they are scrolled to.
import { get, told, watch } from "./api.js";
import { fill, h, link } from "./dom.js";
import { number, plural, signed } from "./format.js";
import { outcomeBadge } from "./episode_view.js";
import { inline, plain, shortened } from "./text.js";

const PAGE = 200;
const ROW = 38;
const FIELDS = ["kind", "outcome", "stop_reason", "env", "difficulty", "item", "trained", "first_step", "last_step", "lowest_return", "highest_return", "text", "order", "direction", "group"];
const COLUMNS = [
  { name: "step", label: "Step", class: "figure" },
  { name: "kind", label: "Kind", plain: true, class: "narrow-hidden" },
  { name: "item_id", label: "Task", class: "grow" },
  { name: "outcome", label: "Outcome", plain: true },
  { name: "return", label: "Return", class: "figure" },
  { name: "stop_reason", label: "Ended by", plain: true, class: "narrow-hidden" },
  { name: "turns", label: "Turns", class: "figure narrow-hidden" },
  { name: "tokens", label: "Tokens", class: "figure narrow-hidden" },
  { name: "group", label: "Group", plain: true, class: "narrow-hidden" },
];

/** Where the list stood that was left last: whoever comes back to it finds it there. */
let left = { address: null };

export async function show(place, { run, words }, signal) {
  const { facets, state } = await get(["runs", run], {}, signal);
  const query = Object.fromEntries(FIELDS.filter((name) => words.get(name)).map((name) => [name, words.get(name)]));
  const list = new EpisodeList(run, signal);
  if (left.address === location.hash) list.goBackTo(left);
  signal.addEventListener("abort", () => { left = list.place(); });
  const ask = () => {
    const address = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== "")).toString();
    history.replaceState(null, "", link("run", run, "episodes") + (address ? `?${address}` : ""));
    list.address = location.hash;
    list.ask(query);
  };
  const form = filters(query, ask);
  form.offer(facets);
  fill(place, h("div", { class: "title-row" }, h("h1", {}, "Episodes"), list.count, list.more), form, list.note, list.headers(query, ask), list.element);
  list.renew().then(() => list.readAhead());
  let version = state.episodes;
  watch([run], told(async (states) => {
    if (states.error) throw new Error(states.error);
    if (states[run].episodes === version) return;
    const now = await get(["runs", run], {}, signal);
    version = now.state.episodes;
    form.offer(now.facets);
    list.news();
  }, place, signal), signal);
  document.addEventListener("keydown", (event) => {
    const isTyping = ["INPUT", "SELECT", "TEXTAREA"].includes(event.target.tagName);
    if (event.key === "/" && !isTyping) {
      event.preventDefault();
      form.querySelector("[name=text]").focus();
    }
  }, { signal });
}

/** The form; `form.offer(facets)` says what there is to choose from, now and whenever there is more. */
function filters(query, ask) {
  let waiting = null;
  const changed = (name, typed) => (event) => {
    query[name] = event.target.value.trim();
    clearTimeout(waiting);
    waiting = setTimeout(ask, typed ? 100 : 0);
  };
  const choice = (name, label, options = []) => {
    const select = h("select", { name, onchange: changed(name) });
    const element = h("label", {}, h("span", {}, label), select);
    element.offer = (entries) => {
      const chosen = query[name] ?? "";
      if (chosen && !entries.some(([value]) => value === chosen)) entries.push([chosen, chosen]);
      select.replaceChildren(h("option", { value: "" }, "any"), ...entries.map(([value, text]) => h("option", { value }, plain(shortened(text)))));
      select.value = chosen;
      element.hidden = entries.length < 2 && !chosen;
    };
    element.offer(options);
    return element;
  };
  const found = { kind: choice("kind", "Kind"), stop_reason: choice("stop_reason", "Ended by"), env: choice("env", "World"), difficulty: choice("difficulty", "Difficulty") };
  const input = (name, label, attributes) => h("label", {}, h("span", {}, label),
    h("input", { name, value: query[name] ?? "", autocomplete: "off", oninput: changed(name, true), ...attributes }));
  const form = h("form", { class: "filters", role: "search", onsubmit: (event) => event.preventDefault() },
    input("text", "Text", { type: "search", placeholder: "said, done or seen   /", class: "wide" }),
    choice("outcome", "Outcome", [["success", "success"], ["miss", "no success"], ["failed", "failed"]]),
    Object.values(found),
    choice("trained", "Trained", [["yes", "yes"], ["no", "no"]]),
    input("item", "Task", { type: "search", placeholder: "maze_12" }),
    h("fieldset", {}, h("legend", {}, "Step"), bound("first_step", "from"), bound("last_step", "to")),
    h("fieldset", {}, h("legend", {}, "Return"), bound("lowest_return", "from"), bound("highest_return", "to")),
    h("button", { type: "button", class: "button quiet", onclick: () => {
      for (const name of FIELDS) delete query[name];
      form.reset();
      for (const field of form.querySelectorAll("input")) field.value = "";
      for (const field of form.querySelectorAll("select")) field.value = "";
      ask();
    } }, "Clear"));
  function bound(name, label) {
    return h("input", { name, type: "number", step: "any", placeholder: label, "aria-label": `${name.replace("_", " ")}`, value: query[name] ?? "", oninput: changed(name, true) });
  }
  form.offer = (facets) => {
    for (const [name, element] of Object.entries(found)) {
      element.offer(Object.entries(facets[name]).sort((a, b) => b[1] - a[1]).map(([value, count]) => [value, `${value} (${number(count)})`]));
    }
  };
  return form;
}

function isSame(row, other) {
  return row.file === other.file && row.number === other.number;
}

class EpisodeList {
  constructor(run, signal) {
    this.run = run;
    this.signal = signal;
    this.count = h("span", { class: "muted", role: "status" });
    this.note = h("p", { class: "muted", hidden: true });
    this.more = h("button", { type: "button", class: "button", hidden: true, onclick: () => { this.element.scrollTop = 0; this.renew(); } }, "There are new episodes");
    this.space = h("div", { class: "virtual-space" });
    this.element = h("div", { class: "virtual", tabindex: "0", role: "listbox", "aria-label": "Episodes" }, this.space);
    this.address = location.hash;
    this.selected = 0;
    this.chosen = null; // the episode that keys chose, wherever it stands when others come
    this.top = null;
    this.isReading = false;
    this.reset();
    this.element.addEventListener("scroll", () => this.draw(), { passive: true });
    this.element.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(this.element);
  }

  reset() {
    this.pages = new Map();
    this.matched = null;
  }

  headers(query, ask) {
    this.query = query;
    const row = h("div", { class: "virtual-head episode-row" });
    const draw = this.drawHeaders = () => fill(row, COLUMNS.map((column) => {
      const isSorted = (query.order ?? "step") === column.name;
      const arrow = isSorted ? (query.direction === "up" ? " ↑" : " ↓") : "";
      if (column.plain) return h("span", { class: column.class }, column.label);
      return h("button", { type: "button", class: `sort ${column.class ?? ""}`, "aria-pressed": String(isSorted), onclick: () => {
        query.direction = isSorted && query.direction !== "up" ? "up" : "down";
        query.order = column.name;
        ask();
      } }, column.label + arrow);
    }));
    draw();
    return row;
  }

  ask(query) {
    this.query = { ...query };
    this.drawHeaders();
    this.selected = 0;
    this.chosen = null;
    this.element.scrollTop = 0;
    this.renew().then(() => this.readAhead());
  }

  place() {
    return { address: this.address, selected: this.selected, chosen: this.chosen, top: this.element.scrollTop };
  }

  goBackTo({ selected, chosen, top }) {
    Object.assign(this, { selected, chosen, top });
  }

  /** Once rows are shown, texts are read that a search of them would want, until there is one. */
  async readAhead() {
    if (this.isReading) return; // it follows the filters
    this.isReading = true;
    try {
      while (!this.query.text && !this.signal.aborted && !document.hidden) {
        const { text: _, ...query } = this.query;
        if ((await get(["runs", this.run, "texts"], query, this.signal)).done) return;
      }
    } catch {
      // The search will say what is wrong.
    } finally {
      this.isReading = false;
    }
  }

  /** New rows come in above: at the top of the list they are shown, further down they wait to be asked for. */
  news() {
    if (this.element.scrollTop < ROW) this.renew();
    else this.more.hidden = false;
  }

  renew() {
    this.more.hidden = true;
    this.asked?.abort();
    this.asked = new AbortController();
    this.reset();
    return this.fetch(0);
  }

  async fetch(page) {
    if (this.pages.has(page)) return;
    this.pages.set(page, null);
    const { signal } = this.asked;
    this.signal.addEventListener("abort", () => this.asked.abort(), { once: true });
    try {
      const answer = await get(["runs", this.run, "episodes"], { ...this.query, offset: page * PAGE, limit: PAGE }, signal);
      if (signal.aborted) return;
      this.pages.set(page, answer.rows);
      this.matched = answer.matched;
      this.tell(answer);
      this.follow(page * PAGE, answer.rows);
      this.draw();
      if (this.top !== null) this.element.scrollTop = this.top; // only now is the list long enough for it
      this.top = null;
      const isShort = answer.search && !answer.search.done && answer.rows.length < PAGE;
      if (isShort || answer.waiting) {
        this.pages.delete(page);
        setTimeout(() => { if (!signal.aborted) this.fetch(page); }, answer.waiting ? 500 : 0);
      }
    } catch (error) {
      if (error.name === "AbortError") return;
      this.count.textContent = error.message;
    }
  }

  /** Where the chosen episode stands now; rows that came in above it do not move it on the screen. */
  follow(start, rows) {
    if (!this.chosen && this.selected) this.chosen = rows[this.selected - start] ?? null;
    const at = this.chosen ? rows.findIndex((row) => isSame(row, this.chosen)) : -1;
    if (at < 0 || start + at === this.selected) return;
    const shift = start + at - this.selected;
    this.selected = start + at;
    this.space.style.setProperty("height", `${this.matched * ROW}px`);
    if (this.top === null) this.element.scrollTop += shift * ROW;
  }

  tell({ total, matched, search, waiting }) {
    const more = search && !search.done ? " so far" : "";
    const progress = search && !search.done ? `, searched ${number(search.searched)} of ${number(search.of)}` : "";
    const indexing = waiting ? ` · ${plural(waiting, "file")} still to be indexed` : "";
    this.count.textContent = (matched === total ? plural(total, "episode") : `${number(matched)}${more} of ${plural(total, "episode")}`) + progress + indexing;
    this.note.hidden = matched > 0;
    this.note.textContent = more ? "Searching …" : total ? "No episode fits these filters." : "No episode is written yet.";
  }

  draw() {
    if (this.matched === null) return;
    this.space.style.setProperty("height", `${this.matched * ROW}px`);
    const first = Math.max(0, Math.floor(this.element.scrollTop / ROW) - 10);
    const last = Math.min(this.matched, Math.ceil((this.element.scrollTop + this.element.clientHeight) / ROW) + 10);
    const rows = [];
    for (let index = first; index < last; index += 1) {
      const page = this.pages.get(Math.floor(index / PAGE));
      if (page === undefined) this.fetch(Math.floor(index / PAGE));
      rows.push(this.row(index, page?.[index % PAGE]));
    }
    this.space.replaceChildren(...rows);
    this.element.setAttribute("aria-activedescendant", `episode-${this.selected}`);
  }

  row(index, row) {
    const attributes = { id: `episode-${index}`, class: `episode-row${index === this.selected ? " selected" : ""}`, style: { top: `${index * ROW}px`, height: `${ROW}px` } };
    if (!row) return h("div", { ...attributes, "aria-hidden": "true" }, h("span", { class: "skeleton grow" }));
    const href = link("run", this.run, "episode", row.file, row.number);
    return h("a", { ...attributes, href, role: "option", "aria-selected": String(index === this.selected), tabindex: "-1" },
      h("span", { class: "figure" }, number(row.step)),
      h("span", { class: "narrow-hidden" }, inline(row.kind, 20)),
      h("span", { class: "grow" }, inline(row.item_id, 80), row.difficulty && h("span", { class: "muted" }, " ", inline(row.difficulty, 30))),
      h("span", {}, outcomeBadge(row)),
      h("span", { class: `figure ${row.episode_return > 0 ? "above" : row.episode_return < 0 ? "below" : ""}` }, signed(row.episode_return)),
      h("span", { class: "narrow-hidden" }, inline(row.stop_reason, 30)),
      h("span", { class: "figure narrow-hidden" }, number(row.turns)),
      h("span", { class: "figure narrow-hidden" }, number(row.tokens)),
      h("span", { class: "narrow-hidden muted" }, `${row.group}·${row.sample}${row.trained ? " trained" : ""}`));
  }

  key(event) {
    const move = { ArrowDown: 1, ArrowUp: -1, PageDown: 15, PageUp: -15, Home: -Infinity, End: Infinity }[event.key];
    if (event.key === "Enter") {
      this.space.querySelector(".selected")?.click();
    } else if (move !== undefined && this.matched) {
      event.preventDefault();
      this.selected = Math.max(0, Math.min(this.matched - 1, this.selected + move));
      this.chosen = this.pages.get(Math.floor(this.selected / PAGE))?.[this.selected % PAGE] ?? null;
      const top = this.selected * ROW;
      if (top < this.element.scrollTop) this.element.scrollTop = top;
      if (top + ROW > this.element.scrollTop + this.element.clientHeight) this.element.scrollTop = top + ROW - this.element.clientHeight;
      this.draw();
    }
  }
}
