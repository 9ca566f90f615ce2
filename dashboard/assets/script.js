// Pages work without this script. It keeps them up to date, has relative times run on, and adds
// what needs a script: a switch of the times, marks for all rows, and buttons that copy.
"use strict";
(() => {
  const body = document.body, state = document.getElementById("live");
  const each = (all, f) => Array.prototype.forEach.call(all, f);
  const make = (name, text, set = {}) => Object.assign(document.createElement(name), { textContent: text }, set);

  // ---- Times ----

  let ahead = 0; // of this browser's clock, the queue's, in ms
  let zone = "UTC";
  try { zone = localStorage.getItem("errand-zone") || zone; } catch { /* storage may be forbidden */ }

  function setClock(text) {
    const now = Date.parse(text);
    if (!isNaN(now)) ahead = now - Date.now();
  }

  const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

  // took is a duration in ms with its two largest units, as the server writes it.
  function took(ms) {
    const s = Math.floor(ms / 1000);
    for (let i = 0; i < units.length; i++) {
      const [of, name] = units[i], n = Math.floor(s / of);
      if (n === 0) continue;
      const rest = i + 1 < units.length && n < 10 ? Math.floor(s % of / units[i + 1][0]) : 0;
      return n + " " + name + (rest ? " " + rest + " " + units[i + 1][1] : "");
    }
    return "0 s";
  }

  function ago(at, now) {
    const d = now - at;
    if (Math.abs(d) < 1000) return "now";
    return d < 0 ? "in " + took(-d) : took(d) + " ago";
  }

  const two = (n, l = 2) => String(n).padStart(l, "0");

  function exact(at) {
    const local = zone === "local", off = local ? -at.getTimezoneOffset() : 0;
    const t = new Date(at.getTime() + off * 60000).toISOString();
    const name = local ? (off < 0 ? "-" : "+") + two(Math.floor(Math.abs(off) / 60)) + ":" + two(Math.abs(off) % 60) : "UTC";
    return t.slice(0, 10) + " " + t.slice(11, 23) + " " + name;
  }

  // short is exact for people who know which day it is.
  function short(at, now) {
    const t = exact(at);
    return t.slice(0, 10) === exact(new Date(now)).slice(0, 10) ? t.slice(11, 19) : t.slice(0, 16);
  }

  function setText(node, text) {
    if (node && node.textContent !== text) node.textContent = text;
  }

  function showTimes(root) {
    const now = Date.now() + ahead;
    each(root.querySelectorAll("time[datetime]"), (t) => {
      const at = new Date(t.dateTime);
      if (isNaN(at)) return;
      setText(t.querySelector(".ago"), t.classList.contains("long") ? took(Math.max(now - at.getTime(), 1000)) : ago(at.getTime(), now));
      const brief = t.matches(".both, .at");
      setText(t.querySelector(".exact"), brief ? short(at, now) : exact(at));
      if (brief) t.title = exact(at);
    });
  }

  const zoneButton = document.getElementById("zone");
  if (zoneButton) {
    const say = () => setText(zoneButton, zone === "UTC" ? "Show local times" : "Show UTC");
    zoneButton.hidden = false;
    zoneButton.addEventListener("click", () => {
      zone = zone === "UTC" ? "local" : "UTC";
      try { localStorage.setItem("errand-zone", zone); } catch { /* it holds for this page */ }
      say();
      showTimes(document);
    });
    say();
  }

  // ---- What a script adds to a page ----

  // copy copies a text. Over plain http browsers have no clipboard but that of a selection.
  async function copy(text) {
    if (navigator.clipboard && window.isSecureContext) {
      try {
        await navigator.clipboard.writeText(text);
        return true;
      } catch { /* it may be forbidden */ }
    }
    const was = document.activeElement, box = make("textarea", text, { readOnly: true, className: "only" });
    body.append(box);
    box.select();
    let done = false;
    try { done = document.execCommand("copy"); } catch { /* it says that it has not copied */ }
    box.remove();
    if (was) was.focus();
    return done;
  }

  function addCopy(node) {
    const place = node.closest("h1") || node;
    if (place.nextElementSibling && place.nextElementSibling.classList.contains("copy")) return;
    const text = node.dataset.copy || node.textContent.trim();
    const button = make("button", "Copy", { type: "button", className: "copy added" });
    button.setAttribute("aria-label", "Copy " + text);
    const told = make("span", "", { className: "only added" });
    told.setAttribute("role", "status");
    button.addEventListener("click", () => copy(text).then((done) => {
      setText(button, done ? "Copied" : "Not copied");
      setText(told, button.textContent);
      if (!done) getSelection().selectAllChildren(node);
      setTimeout(() => { setText(button, "Copy"); setText(told, ""); }, 2000);
    }));
    place.after(button, told);
  }

  const boxes = (table) => table.querySelectorAll("tbody input[type=checkbox][name=id]");

  function addMarkAll(table) {
    const head = table.querySelector("thead th"), all = boxes(table);
    if (!head || all.length === 0 || head.querySelector("input")) return;
    const box = make("input", "", { type: "checkbox", className: "added" });
    box.setAttribute("aria-label", "Mark all on this page");
    box.addEventListener("change", () => each(boxes(table), (b) => { b.checked = box.checked; }));
    table.addEventListener("change", (e) => {
      if (e.target !== box) box.checked = Array.prototype.every.call(boxes(table), (b) => b.checked);
    });
    head.append(box);
  }

  // What is no JSON is not sent, and is said at its field.
  each(document.querySelectorAll("textarea"), (t) => t.addEventListener("input", () => {
    let fault = "";
    try { if (t.value.trim()) JSON.parse(t.value); } catch (e) { fault = "This is no JSON: " + e.message; }
    t.setCustomValidity(fault);
  }));

  function dress() {
    each(document.querySelectorAll("h1 .id, [data-copy]"), addCopy);
    each(document.querySelectorAll("table"), addMarkAll);
    showTimes(document);
  }

  // ---- Parts of a page that have changed ----

  const added = (n) => n.nodeType === 1 && n.classList.contains("added");
  const isField = (n) => n.matches && n.matches("input, select, textarea");

  // filled reports whether somebody fills a form, or has begun to.
  function filled(form) {
    if (isField(document.activeElement) && form.contains(document.activeElement)) return true;
    return Array.prototype.some.call(form.elements, (e) => {
      if (!form.contains(e) || !isField(e) || e.type === "hidden") return false; // a button has no default value
      if (e.type === "checkbox" || e.type === "radio") return e.checked !== e.defaultChecked;
      if (e.options) return Array.prototype.some.call(e.options, (o, i) => o.selected !== (o.defaultSelected || !e.querySelector("[selected]") && i === 0));
      return e.value !== e.defaultValue;
    });
  }

  // keyOf is what tells a row or a section from others beside it.
  function keyOf(n) {
    if (n.nodeType !== 1) return "";
    if (n.id) return "#" + n.id;
    if (n.localName !== "tr") return "";
    const link = n.querySelector("a[href]"), box = n.querySelector("input[name=id]");
    return n.dataset.key || box && box.value || link && link.getAttribute("href") || "";
  }

  const alike = (a, b) => a.nodeType === b.nodeType && a.nodeName === b.nodeName && keyOf(a) === keyOf(b);

  // own are attributes that people change, and not the server.
  const own = { DETAILS: ["open"], INPUT: ["value", "checked"], OPTION: ["selected"] };

  function patchAttributes(old, now) {
    const kept = old.type !== "hidden" && own[old.nodeName] || [];
    each([...old.attributes], (a) => {
      if (!now.hasAttribute(a.name) && !kept.includes(a.name)) old.removeAttribute(a.name);
    });
    each(now.attributes, (a) => {
      if (old.getAttribute(a.name) !== a.value && !kept.includes(a.name)) old.setAttribute(a.name, a.value);
    });
  }

  let skipped = false; // a form is not as the newest page has it

  // patch makes an element like one of a newer page. What is alike stays the same node, so that
  // it keeps its focus, its place and what people have typed, marked or opened.
  function patch(old, now) {
    if (old.nodeName === "FORM" && filled(old)) {
      skipped = true;
      return;
    }
    patchAttributes(old, now);
    if (old.nodeName === "TBODY" && old.parentNode.matches("[data-wait]")) {
      waitRows(old, now);
      return;
    }
    patchChildren(old, [...now.childNodes]);
  }

  function patchNode(old, now) {
    if (old.nodeType === 1) patch(old, now);
    else if (old.nodeValue !== now.nodeValue) old.nodeValue = now.nodeValue;
  }

  function patchChildren(old, news) {
    let at = old.firstChild;
    const skip = () => { while (at && added(at)) at = at.nextSibling; };
    for (const now of news) {
      skip();
      let same = at && alike(at, now) ? at : null;
      if (!same && keyOf(now)) same = [...old.childNodes].find((n) => alike(n, now) && !added(n)) || null;
      if (!same) {
        old.insertBefore(document.importNode(now, true), at);
        continue;
      }
      if (same === at) at = at.nextSibling;
      else old.insertBefore(same, at);
      patchNode(same, now);
    }
    for (skip(); at; skip()) {
      const next = at.nextSibling;
      at.remove();
      at = next;
    }
  }

  // waitRows changes the rows of a list of jobs that stay. Others wait behind a button, so that
  // no row moves while somebody is about to mark or open it.
  function waitRows(old, now) {
    const olds = new Map([...old.rows].map((r) => [keyOf(r), r])), news = [...now.rows];
    const fresh = news.filter((r) => !olds.has(keyOf(r)));
    const kept = new Set(news.map(keyOf)), gone = [...old.rows].filter((r) => !kept.has(keyOf(r)));
    each(news, (r) => { if (olds.has(keyOf(r))) patch(olds.get(keyOf(r)), r); });
    const table = old.parentNode, place = table.closest(".wide") || table;
    let button = place.previousElementSibling;
    if (!button || !button.classList.contains("waiting")) button = null;
    if (fresh.length === 0 && gone.length === 0) {
      if (button) button.remove();
      return;
    }
    if (!button) {
      button = make("button", "", { type: "button", className: "waiting added" });
      place.before(button);
    }
    const words = [];
    if (fresh.length) words.push(fresh.length + " new");
    if (gone.length) words.push(gone.length + " not here any more");
    setText(button, words.join(", "));
    button.onclick = () => {
      patchChildren(old, news);
      button.remove();
      const first = old.querySelector("a, input");
      if (first) first.focus();
      dress();
    };
  }

  const parts = (doc) => [...doc.querySelectorAll("[data-live]")].filter((p) => !p.parentNode.closest("[data-live]"));

  function swap(doc) {
    const focused = document.activeElement, region = focused && focused.closest(".wide, main");
    skipped = false;
    each(parts(document), (old) => {
      const now = parts(doc).find((p) => p.dataset.live === old.dataset.live);
      if (now && old.innerHTML !== now.innerHTML) patch(old, now);
    });
    if (doc.title) document.title = doc.title; // an answer with the nav alone has none
    dress();
    if (focused && focused !== body && !focused.isConnected) (region && region.isConnected ? region : document.getElementById("main")).focus();
  }

  // ---- Asking for a page again ----

  setClock(body.dataset.now);
  dress();
  const first = document.querySelector("[data-focus]"); // not autofocus, which scrolls the heading away
  if (first) first.focus({ preventScroll: true });
  if (!state || body.dataset.page === undefined) { // a page that cannot be asked for again
    setInterval(() => { if (!document.hidden) showTimes(document); }, 1000);
    return;
  }

  const askEach = 2000, patience = 10000;
  let heard = Date.now() - Number(body.dataset.age || 0); // when the page was last known to be the newest
  let tag = body.dataset.tag ? `"${body.dataset.tag}"` : ""; // of what it shows
  let failed = 0, why = ""; // since when it could not be read
  let live = false, asking = false, asked = Date.now();

  function say() {
    const since = took(Date.now() - (failed || heard));
    const stale = document.querySelector("main .away"); // says how old the values are
    const word = failed ? why : stale ? "last values" : live ? "live" : "";
    setText(state.querySelector("[role=status]"), word);
    const seen = state.querySelector(".seen");
    seen.setAttribute("aria-hidden", "true");
    setText(seen, failed ? why.replace(",", " since " + since + ",") : stale ? word : (live ? "live, " : "read ") + since + " ago");
    state.classList.toggle("warn", failed > 0 || stale !== null);
  }

  function fail(text) {
    failed = failed || heard;
    why = text;
  }

  // ask asks what the page shows now, and shows what has changed. Only one is asked for at a time.
  async function ask() {
    if (asking) return;
    asking = true;
    asked = Date.now();
    try {
      const headers = { "Errand-Part": "main" };
      if (tag) headers["If-None-Match"] = tag;
      const r = await fetch(location.origin + location.pathname + location.search, { headers, cache: "no-store", credentials: "same-origin", redirect: "manual", signal: AbortSignal.timeout(patience) });
      const text = await r.text(), ours = r.headers.get("Errand-Page") === body.dataset.page;
      if (ours && (r.ok || r.status === 304)) {
        failed = 0;
        live = true;
        if (r.headers.has("Errand-Age")) heard = Date.now() - Number(r.headers.get("Errand-Age"));
        setClock(r.headers.get("Errand-Now"));
        if (r.status === 200) {
          swap(new DOMParser().parseFromString(text, "text/html"));
          tag = skipped ? "" : r.headers.get("ETag"); // what was skipped is shown once the form is left
        }
      } else if (r.status === 404) fail("not here any more, trying again");
      else if (r.status === 401 || r.status === 403) fail("not let in any more, load the page again");
      else {
        const h1 = new DOMParser().parseFromString(text, "text/html").querySelector("main h1");
        fail("not read, trying again: " + (h1 ? h1.textContent.trim().replace(/\.$/, "") : "an answer of another server"));
      }
    } catch {
      fail("not connected, trying again");
    }
    asking = false;
    say();
  }

  function tick() {
    if (document.hidden) return;
    showTimes(document);
    if (Date.now() - asked >= askEach - 100) ask(); // ticks are early or late by a little
    say();
  }

  document.addEventListener("visibilitychange", () => { if (!document.hidden) ask(); });
  addEventListener("pageshow", (e) => { if (e.persisted && !document.hidden) ask(); });
  say();
  setInterval(tick, 1000);
})();
