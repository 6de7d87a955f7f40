// One episode as a conversation, drawn from its record alone: the page and the single file show the same.
import { copyButton, fill, h } from "./dom.js";
import { number, plural, seconds, signed } from "./format.js";
import { block, inline, plain, shortened } from "./text.js";
import { COLOURINGS, scaleOf, tokenCard, tokensOf, tokenStrip } from "./tokens.js";

const FAILURES = ["env_failure", "env_timeout", "engine_failure", "reward_failure", "deadline", "aborted"];
const TOKENS_AT_ONCE = 3000;
const TOKENS_OF_AN_EPISODE = 12000;
const FEWEST_TOKENS = 100;

export function outcome(row) {
  if (FAILURES.includes(row.stop_reason)) return { name: "failed", label: "failed", mark: "!" };
  return row.success ? { name: "success", label: "success", mark: "✓" } : { name: "miss", label: "no success", mark: "✗" };
}

export function outcomeBadge(row) {
  const { name, label, mark } = outcome(row);
  return h("span", { class: `badge ${name}` }, h("span", { "aria-hidden": "true" }, mark), ` ${label}`);
}

/** The whole view. `around` has what the record does not know: links to siblings, the command that replays it. */
export function episodeView(record, around = {}) {
  const turns = record.turns ?? [];
  const segments = (record.segments ?? []).map((segment, index) => ({ segment, tokens: tokensOf(segment, turns, index) }));
  const all = segments.flatMap(({ tokens }) => tokens);
  const hasAdvantages = all.some((token) => token.advantage !== null);
  const view = { colouring: hasAdvantages ? "advantage" : "log_prob", scale: scaleOf(all), strips: [], room: TOKENS_OF_AN_EPISODE };
  const card = tokenCard();
  const conversation = h("div", { class: "conversation" });
  const stream = h("div", { class: "stream", hidden: true });
  drawConversation(conversation, record, segments, view, card);
  const toolbar = h("div", { class: "toolbar", role: "toolbar", "aria-label": "How tokens are shown" },
    colouringChoice(view, all), arrangement(conversation, stream, () => drawStream(stream, segments, view, card)));
  const element = h("article", { class: "episode" },
    header(record, around), tally(all), toolbar, legend(view), conversation, stream);
  element.close = () => card.close();
  return element;
}

function header(record, around) {
  const facts = [
    ["return", signed(record.return)],
    ["turns", number((record.turns ?? []).length)],
    ["ended by", record.stop_reason],
    ["step", number(record.step)],
    ["group", `${record.group} · sample ${record.sample}`],
    ["seed", String(record.seed)],
    ...Object.entries(record.scores ?? {}).map(([name, value]) => [name === "score" ? name : `score ${plain(shortened(name))}`, number(value)]),
  ];
  return h("header", { class: "episode-header" },
    h("div", { class: "title-row" }, h("h1", {}, inline(record.item_id)), outcomeBadge(record),
      h("span", { class: "muted" }, inline(record.env))),
    h("dl", { class: "facts" }, facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, inline(value))))),
    record.failure && h("div", { class: "notice bad" }, block(record.failure)),
    around.actions && h("div", { class: "actions" }, around.actions),
    around.command && h("div", { class: "command" }, h("code", {}, around.command), copyButton("Copy", around.command)));
}

/** What trained and what did not, as one bar. */
function tally(tokens) {
  const counts = { trained: 0, untrained: 0, context: 0 };
  for (const token of tokens) counts[token.sampled ? (token.trained ? "trained" : "untrained") : "context"] += 1;
  const parts = [
    ["trained", counts.trained, "trained"],
    ["untrained", counts.untrained, "sampled, not trained"],
    ["context", counts.context, "context"],
  ].filter(([, count]) => count);
  return h("div", { class: "tally" },
    h("div", { class: "tally-bar", "aria-hidden": "true" },
      parts.map(([name, count]) => h("span", { class: name, style: { "flex-grow": count } }))),
    h("p", {}, parts.map(([name, count, label], index) => [index ? " · " : "",
      h("span", { class: `swatch ${name}`, "aria-hidden": "true" }), ` ${plural(count, "token")} ${label}`])));
}

function colouringChoice(view, tokens) {
  const known = {
    advantage: tokens.some((token) => token.advantage !== null),
    gap: tokens.some((token) => token.trainer !== null),
    reward: tokens.some((token) => token.reward),
  };
  const select = h("select", { id: "colouring" }, Object.entries(COLOURINGS).map(([name, { label }]) =>
    h("option", { value: name, selected: name === view.colouring, disabled: known[name] === false }, label)));
  select.addEventListener("change", () => {
    view.colouring = select.value;
    view.strips.forEach((strip) => strip.recolour());
    view.describe();
  });
  return h("label", {}, "Colour by ", select);
}

function arrangement(conversation, stream, draw) {
  const button = h("button", { type: "button", class: "button", "aria-pressed": "false" }, "All tokens");
  button.addEventListener("click", () => {
    const whole = stream.hidden;
    if (whole && !stream.firstChild) draw();
    stream.hidden = !whole;
    conversation.hidden = whole;
    button.setAttribute("aria-pressed", String(whole));
  });
  return button;
}

function legend(view) {
  const line = h("p", { class: "legend" });
  view.describe = () => {
    const kinds = {
      trained: [["trained", "trained"], ["untrained", "sampled, not trained"], ["context", "context"]],
      mask: [["sampled", "may train"], ["untrained", "sampled, may not"], ["context", "context"]],
      log_prob: [["surprise", "unlikely"], ["surprise faint", "likely"], ["context", "context"]],
    }[view.colouring] ?? [["above", "above"], ["below", "below"], ["untrained", "none"], ["context", "context"]];
    fill(line, h("span", { class: "muted" }, `${COLOURINGS[view.colouring].about}: `), kinds.map(([kind, label]) =>
      [h("span", { class: `token ${kind}`, style: { "--strength": kind.includes("faint") ? "0.15" : "0.8" } }, label), " "]));
  };
  view.describe();
  return line;
}

function drawConversation(element, record, segments, view, card) {
  const turns = record.turns ?? [];
  segments.forEach(({ segment, tokens }, index) => {
    const prompt = tokens.slice(0, segment.prompt_length);
    const text = segment.pieces ? prompt.map((token) => token.piece).join("") : record.task?.prompt ?? "";
    element.append(h("section", { class: "message world" },
      h("h2", {}, index ? `Segment ${index + 1}: prompt` : "Prompt", h("span", { class: "muted" }, ` ${plural(prompt.length, "token")}`)),
      block(text, 1200)));
    turns.forEach((turn, number_) => {
      if (turn.segment === index) element.append(...drawTurn(turn, number_, tokens, view, card));
    });
    if (segment.summary) element.append(drawSaid(segment.summary, "Summary for the next segment", tokens, view, card));
  });
  if (!segments.length) element.append(h("p", { class: "empty" }, "Nothing was played: the episode failed before its first turn."));
}

/** What the model wrote, as its tokens. */
function drawSaid(turn, title, tokens, view, card) {
  const sampled = tokens.slice(turn.start, turn.end);
  return h("section", { class: sampled.some((token) => token.trained) ? "message agent trained" : "message agent" },
    h("h2", {}, title, h("span", { class: "muted" }, ` ${plural(sampled.length, "token")} · ${seconds(turn.generate_seconds)}`)),
    sampled.length ? boundedTokens(sampled, view, card, `Tokens of ${title}`) : block(turn.text));
}

function drawTurn(turn, index, tokens, view, card) {
  const said = drawSaid(turn, `Turn ${index + 1}`, tokens, view, card);
  const facts = h("div", { class: "turn-facts" },
    turn.action === null
      ? h("span", { class: "chip bad" }, "✗ no action")
      : h("span", { class: turn.invalid_reason ? "chip bad" : "chip good" }, turn.invalid_reason ? "✗ " : "✓ ", inline(turn.action, 200)),
    turn.invalid_reason && h("span", { class: "chip bad" }, inline(turn.invalid_reason, 300)),
    h("span", { class: `chip ${turn.reward > 0 ? "above" : turn.reward < 0 ? "below" : ""}` }, `reward ${signed(turn.reward)}`),
    turn.state_key !== null && turn.state_key !== undefined && h("span", { class: "chip" }, "state ", inline(turn.state_key, 60)),
    h("span", { class: "chip" }, `world ${seconds(turn.env_seconds)}`));
  const seen = turn.observation
    ? h("section", { class: "message world" }, h("h2", {}, "World"), block(turn.observation, 2000))
    : null;
  return [said, facts, seen].filter(Boolean);
}

/** As many tokens as a browser draws quickly, fewer where the episode has many, and a control that shows more. */
function boundedTokens(tokens, view, card, label) {
  const place = h("div");
  const more = h("button", { type: "button", class: "button more" });
  let end = 0;
  const show = (count) => {
    const strip = tokenStrip(tokens.slice(end, end + count), view, card.inspect, label);
    view.strips.push(strip);
    place.append(strip);
    end += count;
    more.textContent = `Show more (${plural(tokens.length - end, "token")} left)`;
    if (end >= tokens.length) more.remove();
  };
  more.addEventListener("click", () => show(TOKENS_AT_ONCE));
  show(Math.max(FEWEST_TOKENS, Math.min(TOKENS_AT_ONCE, view.room)));
  view.room -= Math.min(end, tokens.length);
  return h("div", {}, place, end < tokens.length && more);
}

function drawStream(element, segments, view, card) {
  view.room = TOKENS_OF_AN_EPISODE;
  segments.forEach(({ tokens }, index) => element.append(h("section", { class: "message" },
    h("h2", {}, `Segment ${index + 1}`, h("span", { class: "muted" }, ` ${plural(tokens.length, "token")}`)),
    boundedTokens(tokens, view, card, `Tokens of segment ${index + 1}`))));
}
