// Every token of a segment with what is known of it: as colour at a glance, as numbers on hover and focus.
import { h } from "./dom.js";
import { number, signed } from "./format.js";
import { textNodes } from "./text.js";

export const COLOURINGS = {
  trained: { label: "what trained", about: "tokens that an update was told an advantage for" },
  advantage: { label: "advantage", about: "blue above the baseline, orange (dotted) below" },
  log_prob: { label: "log-prob", about: "the less likely the token was to the engine, the darker" },
  gap: { label: "engine − trainer", about: "where engine and trainer give other log-probs" },
  reward: { label: "reward", about: "blue gained, orange (dotted) lost" },
  mask: { label: "mask", about: "tokens that may train" },
};

/** The tokens of a segment with everything that the record says about each. */
export function tokensOf(segment, turns, segmentIndex) {
  const owner = new Array(segment.ids.length).fill(null);
  const sampled = new Array(segment.ids.length).fill(false);
  turns.forEach((turn, index) => {
    if (turn.segment !== segmentIndex) return;
    owner.fill(index, turn.start, turn.end);
    sampled.fill(true, turn.start, turn.end);
  });
  if (segment.summary) sampled.fill(true, segment.summary.start, segment.summary.end);
  return segment.ids.map((id, position) => ({
    id,
    position,
    piece: segment.pieces ? segment.pieces[position] : null,
    sampled: sampled[position],
    mask: Boolean(segment.mask[position]),
    log_prob: segment.log_probs[position] ?? null,
    trainer: segment.trainer_log_probs?.[position] ?? null,
    advantage: segment.advantages?.[position] ?? null,
    reward: segment.rewards?.[position] ?? 0,
    version: segment.versions[position] ?? null,
    turn: owner[position],
    trained: segment.advantages ? segment.advantages[position] !== null : false,
  }));
}

/** How strong the strongest values of an episode are, so that colours use their whole range. */
export function scaleOf(tokens) {
  const most = (values) => Math.max(1e-9, ...values);
  const limited = tokens.length > 50000 ? tokens.filter((token) => token.sampled).slice(0, 50000) : tokens;
  return {
    advantage: most(limited.map((token) => Math.abs(token.advantage ?? 0))),
    reward: most(limited.map((token) => Math.abs(token.reward))),
    gap: Math.max(0.01, most(limited.map((token) => Math.abs(gap(token) ?? 0)))),
  };
}

/** Classes and strength (0 to 1) of a token in a colouring. */
export function colour(token, colouring, scale) {
  if (!token.sampled) return ["context", 0];
  if (colouring === "mask") return token.mask ? ["sampled", 0.6] : ["untrained", 0];
  if (colouring === "trained") return token.trained ? ["trained", 0.6] : ["untrained", 0];
  if (colouring === "log_prob") {
    return token.log_prob === null ? ["untrained", 0] : ["surprise", Math.min(1, -token.log_prob / 4)];
  }
  const value = { advantage: token.advantage, reward: token.reward, gap: gap(token) }[colouring];
  if (value === null) return ["untrained", 0];
  const strength = Math.min(1, Math.abs(value) / scale[colouring]);
  return [value < 0 ? "below" : value > 0 ? "above" : "even", strength];
}

export function gap(token) {
  return token.trainer === null || token.log_prob === null ? null : token.log_prob - token.trainer;
}

/** A strip of tokens. Arrow keys walk along it; the token under the pointer or the focus is told to `inspect`. */
export function tokenStrip(tokens, view, inspect, label) {
  const spans = tokens.map((token) => tokenSpan(token, view));
  const strip = h("div", { class: "tokens", dir: "auto", tabindex: "0", role: "group", "aria-label": label }, spans);
  let active = -1;
  const choose = (index) => {
    spans[active]?.classList.remove("active");
    active = Math.max(0, Math.min(tokens.length - 1, index));
    spans[active]?.classList.add("active");
    if (tokens.length) inspect(tokens[active], spans[active]);
  };
  strip.addEventListener("pointerover", (event) => {
    const span = event.target.closest(".token");
    if (span) choose(spans.indexOf(span));
  });
  strip.addEventListener("pointerleave", () => { if (document.activeElement !== strip) leave(); });
  strip.addEventListener("focus", () => choose(active < 0 ? 0 : active));
  strip.addEventListener("blur", () => leave());
  strip.addEventListener("keydown", (event) => {
    const move = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 10, ArrowUp: -10 }[event.key];
    const jump = { Home: 0, End: tokens.length - 1 }[event.key];
    if (move === undefined && jump === undefined) return;
    event.preventDefault();
    choose(jump ?? active + move);
    spans[active]?.scrollIntoView({ block: "nearest" });
  });
  const leave = () => {
    spans[active]?.classList.remove("active");
    inspect(null);
  };
  strip.recolour = () => spans.forEach((span, index) => paint(span, tokens[index], view));
  return strip;
}

function tokenSpan(token, view) {
  const piece = token.piece;
  const shown = piece === null ? [`⟨${token.id}⟩`] : piece === "" ? ["·"] : textNodes(piece);
  const span = h("span", { class: "token" }, shown);
  paint(span, token, view);
  return span;
}

function paint(span, token, view) {
  const [kind, strength] = colour(token, view.colouring, view.scale);
  span.className = `token ${kind}${token.piece === "" ? " part" : ""}${span.classList.contains("active") ? " active" : ""}`;
  span.style.setProperty("--strength", strength.toFixed(3));
}

/** The numbers of a token, as a list of name and value. */
export function numbersOf(token) {
  const likely = token.log_prob === null ? "–" : `${number(token.log_prob)} (p ${number(100 * Math.exp(token.log_prob))} %)`;
  const told = token.sampled ? (token.trained ? "sampled, trained" : "sampled, not trained") : "context, never trained";
  return [
    ["token", `${token.id} at ${token.position}`],
    ["", told],
    ["mask", token.mask ? "1" : "0"],
    ["engine", likely],
    ["trainer", number(token.trainer)],
    ["engine − trainer", gap(token) === null ? "–" : signed(gap(token), 2)],
    ["advantage", token.advantage === null ? "–" : signed(token.advantage)],
    ["reward", token.reward ? signed(token.reward) : "–"],
    ["policy", token.version === null ? "–" : `version ${token.version}`],
  ];
}

/** The card beside the token in question. */
export function tokenCard() {
  const card = h("div", { class: "token-card", role: "status", "aria-live": "polite", hidden: true });
  document.body.append(card);
  let beside = null;
  const place = () => {
    if (!beside) return;
    const at = beside.getBoundingClientRect();
    const box = card.getBoundingClientRect();
    const left = Math.min(Math.max(8, at.left), window.innerWidth - box.width - 8);
    const below = at.bottom + 8 + box.height < window.innerHeight;
    card.style.setProperty("left", `${left}px`);
    card.style.setProperty("top", `${below ? at.bottom + 8 : Math.max(8, at.top - box.height - 8)}px`);
  };
  const closing = new AbortController();
  window.addEventListener("scroll", place, { passive: true, signal: closing.signal });
  card.close = () => {
    closing.abort();
    card.remove();
  };
  card.inspect = (token, span) => {
    beside = token ? span : null;
    card.hidden = !token;
    if (!token) return;
    const rows = numbersOf(token).map(([name, value]) =>
      name ? h("div", { class: "pair" }, h("dt", {}, name), h("dd", {}, value)) : h("div", { class: "pair told" }, value));
    const text = token.piece === null ? "" : JSON.stringify(token.piece).slice(1, -1);
    card.replaceChildren(h("bdi", { class: "token-text" }, ...textNodes(text.slice(0, 80) || "part of a character")), h("dl", {}, rows));
    place();
  };
  return card;
}
