// What the server says: answers, and news of change.

/** A path below /api with a query; a list of values becomes several words of the query. */
export function address(path, query = {}) {
  const words = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const entry of [value].flat()) if (entry !== "" && entry !== null && entry !== undefined) words.append(name, entry);
  }
  const text = words.toString();
  return "/api/" + path.map(encodeURIComponent).join("/") + (text ? `?${text}` : "");
}

export async function get(path, query, signal) {
  const response = await fetch(address(path, query), { signal });
  const isJson = response.headers.get("content-type")?.startsWith("application/json");
  const answer = isJson ? await response.json() : { error: await response.text() };
  if (!response.ok) throw new Error(answer.error || `the server answered ${response.status}`);
  return answer;
}

/** Call `tell(state)` whenever the named runs change, until `signal` ends. */
export function watch(runs, tell, signal) {
  const source = new EventSource(address(["changes"], { run: runs }));
  source.addEventListener("message", (event) => {
    document.documentElement.dataset.live = "yes";
    tell(JSON.parse(event.data));
  });
  source.addEventListener("error", () => { document.documentElement.dataset.live = "no"; });
  signal.addEventListener("abort", () => {
    source.close();
    delete document.documentElement.dataset.live;
  });
}
