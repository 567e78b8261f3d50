"use strict";
const D = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const node = (tag, attrs = {}, ...children) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attrs)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "html") made.innerHTML = value;
    else if (name === "style") made.style.cssText = value;
    else made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return made;
};
const escaped = (text) => text.replace(/[&<>]/g, (c) => ({"&": "&amp;", "<": "&lt;", ">": "&gt;"})[c]);
const scaled = (x, units) => {
  for (const [unit, scale] of units) if (Math.abs(x) >= scale) return `${Number((x / scale).toPrecision(3))} ${unit}`;
  return x ? `${Number((x / units.at(-1)[1]).toPrecision(2))} ${units.at(-1)[0]}` : "0";
};
const time = (s) => scaled(s, [["s", 1], ["ms", 1e-3], ["µs", 1e-6], ["ns", 1e-9]]);
const bytes = (n) => scaled(n, [["GB", 1e9], ["MB", 1e6], ["kB", 1e3], ["B", 1]]);
const count = (n) => scaled(n, [["G", 1e9], ["M", 1e6], ["k", 1e3], ["", 1]]);
const percent = (x) => `${x >= 0.1 ? Math.round(100 * x) : Number((100 * x).toPrecision(2))} %`;

// ---- links: a key names a line, an equation, a step or a value; linked(key) is all that belongs to it
const equations = new Map(D.equations.map((e) => [e.id, e]));
const steps = new Map(D.steps.map((s) => [s.id, s]));
const lineKey = (line) => (line ? `L:${line[0]}:${line[1]}` : null);
const byLine = new Map(), makerOf = new Map(), usersOf = new Map();
const push = (map, key, value) => { if (!map.has(key)) map.set(key, []); map.get(key).push(value); };
for (const e of D.equations) {
  if (e.line) push(byLine, lineKey(e.line), e.id);
  for (const value of e.makes) makerOf.set(value, e.id);
}
for (const s of D.steps) for (const o of s.operands) push(usersOf, o.value, s.id);
const linked = (key) => {
  const found = new Set([key]);
  const equation = (id) => {
    const e = equations.get(id);
    if (!e) return;
    found.add(`E:${id}`);
    if (e.line) found.add(lineKey(e.line));
    for (const s of e.steps) found.add(`S:${s}`);
    for (const v of e.makes) found.add(`V:${v}`);
  };
  const rest = key.slice(2);
  if (key[0] === "L") (byLine.get(key) || []).forEach(equation);
  if (key[0] === "E") equation(rest);
  if (key[0] === "S") {
    const s = steps.get(rest);
    for (const id of s.equations) { found.add(`E:${id}`); const l = lineKey(equations.get(id)?.line); if (l) found.add(l); }
    for (const [file, line] of s.lines) found.add(`L:${file}:${line}`);
    for (const o of s.operands) found.add(`V:${o.value}`);
  }
  if (key[0] === "V") {
    if (makerOf.has(rest)) equation(makerOf.get(rest));
    for (const s of usersOf.get(rest) || []) found.add(`S:${s}`);
  }
  return found;
};
const elements = new Map();
const register = (element, key) => {
  if (!key) return element;
  element.dataset.k = key;
  push(elements, key, element);
  return element;
};
const hues = new Map(D.steps.map((s, i) => [s.id, Math.round((210 + i * 137.5) % 360)]));
const hue = (id) => (hues.has(id) ? `--hue:hsl(${hues.get(id)} var(--h-sat) var(--h-light))` : "");

// ---- source
const PYTHON = /(#.*$)|("""[\s\S]*?"""|'''[\s\S]*?'''|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|\b(def|return|for|in|if|else|elif|while|lambda|import|from|as|with|class|not|and|or|is|None|True|False|yield|raise|try|except|pass)\b|\b(\d[\d_.e]*)\b/gm;
const coloured = (text) => {
  let out = "", last = 0;
  for (const m of text.matchAll(PYTHON)) {
    const kind = m[1] ? "c" : m[2] ? "s" : m[3] ? "k" : "d";
    out += `${escaped(text.slice(last, m.index))}<span class=${kind}>${escaped(m[0])}</span>`;
    last = m.index + m[0].length;
  }
  return out + escaped(text.slice(last));
};
const showSource = () => {
  const all = D.sources.flatMap((s) => Object.values(s.seconds)), most = Math.max(...all, 0);
  D.sources.forEach((source, file) => {
    $("source").append(node("div", {class: "head", title: source.file}, source.short));
    source.blocks.forEach(([first, lines], block) => {
      if (block) $("source").append(node("div", {class: "gap"}, "⋮"));
      lines.forEach((text, i) => {
        const key = `L:${file}:${first + i}`, used = byLine.has(key), seconds = source.seconds[first + i] || 0;
        const heat = node("u", {style: seconds ? `--heat:${Math.max(6, (100 * seconds) / most)}%` : "", title: seconds ? `${time(seconds)} in the profile` : null});
        const row = node("div", {class: `row code line${used ? "" : " plain"}`, role: "option"}, node("i", {}, String(first + i)), heat, node("span", {html: coloured(text) || " "}));
        $("source").append(used ? register(row, key) : row);
      });
    });
  });
  if (!D.sources.length) $("source").append(node("div", {class: "row empty"}, "The lines of this program are not known."));
};

// ---- equations
const equationHtml = (text) => {
  const cut = text.indexOf(" = "), left = text.slice(0, cut), right = text.slice(cut + 3);
  const m = right.match(/^([\w-]+)(\[[^\]]*\])?(.*)$/) || [null, right, "", ""];
  const typed = escaped(left).replace(/:([\w[\],*]+)/g, "<span class=dim>:$1</span>");
  return `${typed} = <span class=prim>${escaped(m[1])}</span><span class=dim>${escaped(m[2] || "")}</span>${escaped(m[3])}`;
};
const showEquations = () => {
  let program = -1;
  D.equations.forEach((e, i) => {
    if (e.program !== program && D.programs.length > 1) $("equations").append(node("div", {class: "head"}, D.programs[e.program].name));
    program = e.program;
    const at = (o) => o && o.program === e.program && o.steps[0] === e.steps[0];
    const ends = `${at(D.equations[i - 1]) ? "" : " first"}${at(D.equations[i + 1]) ? "" : " last"}`;
    const row = node("div", {class: `row code eq${e.backward ? " backward" : ""}${ends}`, role: "option", style: hue(e.steps[0]), html: equationHtml(e.text), title: e.backward ? "backward pass" : null});
    $("equations").append(register(row, `E:${e.id}`));
  });
};

// ---- steps
const secondsOf = (s) => (s.measured ? s.measured.mean * s.measured.runs / s.measured.calls : s.estimate);
const showSteps = () => {
  const most = Math.max(...D.steps.map((s) => (s.measured || !D.seconds ? secondsOf(s) : 0)), 1e-12);
  let program = -1;
  for (const s of D.steps) {
    if (s.program !== program && D.programs.length > 1) $("steps").append(node("div", {class: "head"}, D.programs[s.program].name));
    program = s.program;
    const facts = [s.bytes ? bytes(s.bytes) : "", s.operations ? `${count(s.operations)} op` : ""];
    if (s.bandwidth !== null && s.limit === "memory") facts.push(`${percent(s.bandwidth)} of memory`);
    if (s.arithmetic !== null && s.limit === "arithmetic") facts.push(`${percent(s.arithmetic)} of arithmetic`);
    const row = node("div", {class: "row step", role: "option", style: hue(s.id)},
      node("div", {class: "top"}, node("span", {class: "name", title: s.name}, s.name), node("span", {class: "tag"}, s.what),
        node("span", {class: "time"}, s.measured ? time(s.measured.mean) : s.estimate ? `≈ ${time(s.estimate)}` : "")),
      node("div", {class: "meter"}, node("b", {style: `width:${Math.min(100, (100 * secondsOf(s)) / most)}%`})),
      node("div", {class: "sub"}, ...facts.filter(Boolean).map((f) => node("span", {}, f))));
    $("steps").append(register(row, `S:${s.id}`));
  }
};

// ---- the drawer
let current = null;
const bar = (x) => node("div", {class: "meter"}, node("b", {style: `width:${Math.min(100, 100 * x)}%`}));
const valueCode = (o) => register(node("code", {}, `${o.name}:${o.type}`), `V:${o.value}`);
const memoryText = new Map(D.memory.filter((m) => m.kind !== "copy").map((m) => [m.value, m.text]));
const showStep = () => {
  const s = current && steps.get(current);
  for (const id of ["facts", "operands", "ends"]) $(id).replaceChildren();
  $("which").textContent = s ? s.name : "";
  if (!s) { $("facts").append(node("p", {class: "empty"}, "Choose a step, an equation or a line.")); return; }
  const rows = [["kind", s.what], ["reads and writes", bytes(s.bytes)], ["operations", count(s.operations)], ["estimated, one thread", time(s.estimate)]];
  if (s.measured) rows.push(["measured", `${time(s.measured.mean)}, best ${time(s.measured.best)}`], ["runs in a call", count(s.measured.runs / s.measured.calls)]);
  $("facts").append(node("h3", {}, s.name), node("dl", {}, ...rows.flatMap(([a, b]) => [node("dt", {}, a), node("dd", {}, b)])));
  if (s.bandwidth !== null) {
    $("facts").append(node("p", {class: "cure"}, `${percent(s.bandwidth)} of the memory's speed`), bar(s.bandwidth), node("p", {class: "cure"}, `${percent(s.arithmetic)} of the arithmetic's`), bar(s.arithmetic));
    if (s.limit) $("facts").append(node("p", {class: "cure"}, {memory: "Memory is the nearer limit.", arithmetic: "Arithmetic is the nearer limit.", start: "Too short for either limit: starting it is most of its time.", steps: "Far from either limit: its steps are short, or wait for each other."}[s.limit]));
  }
  const table = node("table", {}, node("tr", {}, ...["", "operand", "bytes", "memory"].map((h, i) => node("th", {class: i === 2 ? "n" : null}, h))));
  for (const o of s.operands) table.append(node("tr", {}, node("td", {class: "dim"}, o.role), node("td", {}, valueCode(o)), node("td", {class: "n"}, bytes(o.bytes)), node("td", {title: memoryText.get(o.value)}, o.memory ? node("span", {class: `badge ${o.memory}`}, o.memory) : "")));
  $("operands").append(node("h3", {}, "Operands"), table);
  $("ends").append(node("h3", {}, "Why it begins and ends here"));
  const edges = D.boundaries.filter((b) => b.maker === s.id || b.reader === s.id);
  const grouped = new Map();
  for (const b of edges) push(grouped, `${b.value} ${b.code} ${b.maker === s.id} ${b.why}`, b);
  for (const group of grouped.values()) {
    const b = group[0], begins = b.maker !== s.id, whom = node("span", {class: "dim"});
    group.map((one) => (begins ? one.maker : one.reader)).filter(Boolean).forEach((id, i) => whom.append(i ? ", " : begins ? " from " : " to ", register(node("span", {}, steps.get(id).name), `S:${id}`)));
    $("ends").append(node("div", {class: "why"}, node("p", {}, valueCode(b), " ", node("span", {class: "badge cost"}, b.code), " ", node("span", {class: "dim"}, bytes(group.reduce((sum, one) => sum + one.bytes, 0))), whom), node("p", {}, b.why), node("p", {class: "cure"}, b.cure)));
  }
  if (!edges.length) $("ends").append(node("p", {class: "empty"}, "It reads arguments and writes results; nothing passes through memory between steps."));
};
const unpack = async (packed) => {
  const data = Uint8Array.from(atob(packed), (c) => c.charCodeAt(0));
  return new Response(new Blob([data]).stream().pipeThrough(new DecompressionStream("deflate-raw"))).text();
};
const loopKeys = (s, text) => { // the k-th statement of an operation belongs to the k-th equation of that operation
  const byName = new Map(), seen = new Map();
  for (const id of s.equations) push(byName, (equations.get(id)?.text.split(" = ")[1] || "").match(/^[\w-]+/)?.[0], id);
  return text.split("\n").map((line) => {
    const name = line.match(/= (\w+)[ (]/)?.[1], k = seen.get(name) || 0;
    if (!name || !byName.has(name)) return null;
    seen.set(name, k + 1);
    return byName.get(name)[Math.min(k, byName.get(name).length - 1)];
  });
};
let codeShown = null;
const showCode = async () => {
  if (codeShown === current) return;
  const mine = (codeShown = current), s = current && steps.get(current);
  for (const id of ["loops", "llvm", "asm"]) $(id).replaceChildren();
  if (!s || !s.texts.length) {
    $("loops").append(node("p", {class: "empty"}, s ? `A ${s.what} has no code of its own: the runtime's library does it.` : "Choose a step."));
    return;
  }
  for (const number of s.texts) {
    const text = D.texts[number].loops, keys = loopKeys(s, text), pre = node("pre");
    text.split("\n").forEach((line, i) => {
      const row = node("div", {class: "row", style: keys[i] ? hue(s.id) : ""}, line || " ");
      pre.append(keys[i] ? register(row, `E:${keys[i]}`) : row);
    });
    $("loops").append(node("h3", {}, "loops"), pre);
    for (const form of ["llvm", "asm"]) {
      const unpacked = await unpack(D.texts[number][form]);
      if (mine !== codeShown) return;
      $(form).append(node("h3", {}, form === "asm" ? "assembly" : "LLVM"), register(node("pre", {}, unpacked), `S:${s.id}`));
    }
  }
  for (const element of elements.get(`S:${current}`) || []) element.classList.toggle("pin", pinned === `S:${current}`);
};
const showMemory = () => {
  const table = node("table", {}, node("tr", {}, node("th", {}, ""), node("th", {}, "value"), node("th", {class: "n"}, "bytes"), node("th", {}, "why")));
  for (const m of D.memory) {
    const [head, ...rest] = m.text.split(": ");
    table.append(register(node("tr", {}, node("td", {}, node("span", {class: `badge ${m.kind}`}, m.kind)), node("td", {}, node("code", {}, m.kind === "copy" ? head.split(",")[0] : head.replace(/ \d+ bytes$/, ""))), node("td", {class: "n"}, bytes(m.bytes)), node("td", {}, rest.join(": "))), m.value ? `V:${m.value}` : null));
  }
  $("memory").append(node("h3", {}, "Where each value is, and why"), table);
  $("residuals").append(node("h3", {}, "Kept for the backward pass"));
  if (!D.residuals.length) $("residuals").append(node("p", {class: "empty"}, "There is no backward pass."));
  for (const r of D.residuals) $("residuals").append(register(node("div", {class: "row code"}, r.text), r.value ? `V:${r.value}` : null));
};
const showTimeline = () => {
  const t = D.timeline;
  if (!t) { $("timeline").append(node("p", {class: "empty"}, "Nothing was run: give arrays as arguments, not their types.")); return; }
  $("timeline").append(node("h3", {}, `One call, ${time(t.length * 1e-9)}: who did what when`));
  const lanes = t.threads.map((name) => node("div", {class: "lane"}, node("label", {title: name}, name)));
  for (const [thread, begin, length, kind, name, step] of t.spans) {
    if (kind === "call") continue;
    const width = (100 * length) / t.length;
    const span = node("div", {class: "span", style: `left:${(100 * begin) / t.length}%;width:${width}%;${hue(step)}`, title: `${name}: ${time(length * 1e-9)}${kind === "share" ? ", a worker's share" : ""}`}, width > 4 ? name : "");
    lanes[thread].append(register(span, step ? `S:${step}` : null));
  }
  $("timeline").append(...lanes, node("div", {class: "axis"}, ...[0, 0.25, 0.5, 0.75, 1].map((x) => node("span", {}, time(x * t.length * 1e-9)))));
};
const showHistory = () => {
  const table = node("table", {}, node("tr", {}, ...["", "function", "types", "called at", "ms", "cause and cure"].map((h) => node("th", {class: h === "ms" ? "n" : null}, h))));
  for (const h of D.history) {
    const causes = h.causes.map(([kind, text, cure]) => node("div", {}, node("span", {class: "badge"}, kind), ` ${text}. `, node("span", {class: "cure"}, cure)));
    const built = h.kind === "trace" ? "" : `${h.kernels[0]} kernels built, ${h.kernels[1]} loaded, ${h.kernels[2]} reused`;
    table.append(node("tr", {}, node("td", {}, node("span", {class: "badge"}, h.kind)), node("td", {}, node("code", {}, h.name)), node("td", {}, node("code", {}, h.types)), node("td", {}, h.at), node("td", {class: "n"}, h.ms.toFixed(2)), node("td", {}, ...causes, built)));
  }
  const total = D.history.reduce((sum, h) => sum + h.ms, 0);
  $("history").append(node("h3", {}, `What this process traced and compiled: ${total.toFixed(0)} ms`), table);
};
const showFindings = () => {
  if (!D.findings.length) { $("findings").append(node("p", {class: "empty"}, "Nothing stands out.")); return; }
  for (const f of D.findings) {
    const where = f.line ? `${D.sources[f.line[0]].short}:${f.line[1]}` : "";
    $("findings").append(register(node("div", {class: "why row"}, node("p", {}, node("span", {class: "badge cost"}, f.code), " ", node("span", {class: "dim"}, [where, f.bytes ? bytes(f.bytes) : ""].filter(Boolean).join(", "))), node("p", {}, f.text), node("p", {class: "cure"}, f.cure)), lineKey(f.line)));
  }
};

// ---- pointing and choosing
let pinned = null, lit = [];
const light = (key) => {
  for (const element of lit) element.classList.remove("lit");
  lit = [];
  if (!key) return;
  for (const one of linked(key)) for (const element of elements.get(one) || []) { element.classList.add("lit"); lit.push(element); }
};
const intoView = (pane) => {
  const shown = $(pane), first = [...shown.querySelectorAll(".lit")];
  if (!first.length) return;
  const box = shown.getBoundingClientRect();
  const seen = first.some((e) => { const b = e.getBoundingClientRect(); return b.top >= box.top && b.bottom <= box.bottom; });
  if (!seen) first[0].scrollIntoView({block: "center"});
};
const choose = (key) => {
  for (const element of document.querySelectorAll(".pin")) element.classList.remove("pin");
  pinned = key;
  light(key);
  if (!key) return;
  const step = [...linked(key)].find((k) => k[0] === "S");
  if (step) { current = step.slice(2); showStep(); if (tab === "code") showCode(); }
  light(key);
  for (const element of elements.get(key) || []) element.classList.add("pin");
  ["source", "equations", "steps"].forEach(intoView);
};
document.addEventListener("mouseover", (event) => {
  const target = event.target.closest?.("[data-k]");
  light(target ? target.dataset.k : pinned);
});
document.addEventListener("click", (event) => {
  const target = event.target.closest?.("[data-k]");
  if (target) choose(target.dataset.k);
});

// ---- tabs, theme, search, keys
let tab = "step";
const TABS = ["step", "code", "memory", "timeline", "history", "findings", "traced"];
const open = (name) => {
  tab = name;
  for (const one of TABS) {
    $(`v-${one}`).classList.toggle("on", one === name);
    $(`t-${one}`).setAttribute("aria-selected", String(one === name));
  }
  if (name === "code") showCode();
  if (name === "traced" && !$("traced").children.length) unpack(D.traced).then((text) => $("traced").append(node("h3", {}, "The program as it was traced, before the compiler's passes"), node("pre", {}, text)));
};
const remembered = (value) => { try { if (value) localStorage.setItem("weft-theme", value); return localStorage.getItem("weft-theme"); } catch { return null; } };
const theme = (name) => { document.documentElement.dataset.theme = name; };
const toggleTheme = () => { const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark"; theme(next); remembered(next); };
let hits = [], hit = -1;
const unmark = () => { for (const m of document.querySelectorAll("mark")) { const parent = m.parentNode; m.replaceWith(...m.childNodes); parent.normalize(); } };
const search = (query) => {
  unmark();
  hits = []; hit = -1;
  const wanted = query.trim().toLowerCase();
  if (!wanted) { $("found").textContent = ""; return; }
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT, (n) => (n.parentNode.closest("script,style,header,nav,dialog") ? NodeFilter.FILTER_REJECT : NodeFilter.FILTER_ACCEPT));
  const texts = [];
  while (walker.nextNode() && texts.length < 2000) if (walker.currentNode.data.toLowerCase().includes(wanted)) texts.push(walker.currentNode);
  for (let text of texts) {
    for (let at; (at = text.data.toLowerCase().indexOf(wanted)) >= 0 && hits.length < 5000;) {
      const middle = text.splitText(at), after = middle.splitText(wanted.length), mark = node("mark");
      middle.replaceWith(mark);
      mark.append(middle);
      hits.push(mark);
      text = after;
    }
  }
  $("found").textContent = hits.length ? `${hits.length} found` : "none";
};
const nextHit = (by) => {
  if (!hits.length) return;
  hit = (hit + by + hits.length) % hits.length;
  const view = hits[hit].closest(".view");
  if (view) open(view.id.slice(2));
  hits[hit].scrollIntoView({block: "center"});
  $("found").textContent = `${hit + 1} of ${hits.length}`;
  const target = hits[hit].closest("[data-k]");
  if (target) choose(target.dataset.k);
};
const move = (by) => {
  const active = document.activeElement, pane = active.classList?.contains("rows") ? active : $("steps");
  const rows = [...pane.querySelectorAll("[data-k]")];
  const at = rows.findIndex((r) => r.classList.contains("pin"));
  const next = rows[Math.max(0, Math.min(rows.length - 1, at < 0 ? 0 : at + by))];
  if (!next) return;
  choose(next.dataset.k);
  next.scrollIntoView({block: "nearest"});
};
const focusPane = (by) => {
  const panes = ["source", "equations", "steps"], at = panes.indexOf(document.activeElement.id);
  $(panes[(at + by + 3) % 3]).focus();
};
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target === $("search");
  if (typing && event.key === "Enter") { nextHit(event.shiftKey ? -1 : 1); event.preventDefault(); return; }
  if (event.key === "Escape") { $("search").value = ""; search(""); $("search").blur(); choose(null); return; }
  if (typing) return;
  const keys = {"/": () => $("search").focus(), "?": () => $("help").showModal(), t: toggleTheme, j: () => move(1), k: () => move(-1), ArrowDown: () => move(1), ArrowUp: () => move(-1), h: () => focusPane(-1), l: () => focusPane(1), ArrowLeft: () => focusPane(-1), ArrowRight: () => focusPane(1), n: () => nextHit(1), N: () => nextHit(-1)};
  TABS.forEach((name, i) => { keys[String(i + 1)] = () => open(name); });
  if (keys[event.key]) { keys[event.key](); event.preventDefault(); }
});
let waiting = 0;
$("search").addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(() => search($("search").value), 80); });
$("grip").addEventListener("pointerdown", (down) => {
  const height = innerHeight;
  const drag = (e) => document.body.style.setProperty("--drawer", `${Math.max(12, Math.min(80, 100 - (100 * e.clientY) / height))}%`);
  $("grip").setPointerCapture(down.pointerId);
  $("grip").addEventListener("pointermove", drag);
  $("grip").addEventListener("pointerup", () => $("grip").removeEventListener("pointermove", drag), {once: true});
});

// ---- begin
const begin = () => {
  theme(remembered() || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
  const cut = D.name.indexOf("(");
  $("name").append(D.name.slice(0, cut), node("small", {title: D.name}, D.name.slice(cut)));
  const moved = D.steps.reduce((sum, s) => sum + s.bytes, 0);
  const facts = [[D.seconds ? time(D.seconds.mean) : `≈ ${time(D.steps.reduce((sum, s) => sum + s.estimate, 0))}`, D.seconds ? "a call" : "a call, estimated"], [String(D.steps.length), D.steps.length === 1 ? "step" : "steps"], [bytes(moved), "moved"]];
  for (const [number, what] of facts) $("summary").append(node("span", {}, node("b", {}, number), ` ${what}`));
  const limits = D.limits ? `; measured limits: ${bytes(D.limits.bandwidth)}/s, ${count(D.limits.flops)}flop/s, ${D.limits.threads} threads` : "";
  $("summary").title = `weft ${D.version}, ${D.machine}${limits}`;
  if (D.findings.length) {
    const button = node("button", {class: "attention"}, node("b", {}, String(D.findings.length)), D.findings.length === 1 ? " finding" : " findings");
    button.addEventListener("click", () => open("findings"));
    $("summary").append(button);
  }
  for (const [id, n] of [["source", D.sources.length ? `${byLine.size} lines` : ""], ["equations", String(D.equations.length)], ["steps", D.seconds ? "measured" : "estimated"]]) $(`n-${id}`).textContent = n;
  showSource(); showEquations(); showSteps(); showMemory(); showTimeline(); showHistory(); showFindings();
  for (const name of TABS) $(`t-${name}`).addEventListener("click", () => open(name));
  $("theme").addEventListener("click", toggleTheme);
  $("keys").addEventListener("click", () => $("help").showModal());
  open("step");
  const slowest = D.steps.reduce((a, b) => (!a || secondsOf(b) > secondsOf(a) ? b : a), null);
  if (slowest) { current = slowest.id; showStep(); }
  document.documentElement.dataset.ready = "yes";
};
begin();
