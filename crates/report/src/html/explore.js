// What one does with a page of flashscope: sort and filter its tables, zoom into the timeline, select a range of it.
// No library: the page has to be one small file, and this is all that it needs.
"use strict";
(() => {
  const make = (tag, attributes, ...children) => {
    const svg = ["svg", "rect", "line", "text", "g", "title"].includes(tag);
    const element = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (value !== undefined) element.setAttribute(name, value);
    }
    element.append(...children);
    return element;
  };

  // Units, as the tables have them.
  const digits = (n) => (n >= 100 ? n.toFixed(0) : n >= 10 ? n.toFixed(1) : n.toFixed(2));
  const scaled = (n, units, step) => {
    let at = 0;
    while (n >= step && at < units.length - 1) { n /= step; at += 1; }
    return `${at === 0 ? Math.round(n) : digits(n)} ${units[at]}`;
  };
  const size = (n) => scaled(n, ["B", "KiB", "MiB", "GiB", "TiB"], 1024);
  const time = (ns) => scaled(ns, ["ns", "µs", "ms", "s"], 1000);
  const UNITS = { ns: 1, "µs": 1e3, ms: 1e6, s: 1e9, B: 1, KiB: 1024, MiB: 1048576, GiB: 1073741824, TiB: 1099511627776 };

  // A cell's value: numbers with their unit, else its text.
  const value = (cell) => {
    const text = cell ? cell.textContent.trim() : "";
    const found = /^[+−-]?[\d,]+(\.\d+)?(?:\s*([A-Za-zµ%]+))?/.exec(text);
    if (!found || !cell.classList.contains("num")) return text.toLowerCase();
    return parseFloat(found[0].replace(/,/g, "").replace("−", "-")) * (UNITS[found[2]] || 1);
  };
  const compare = (a, b) => {
    if (typeof a === typeof b) return typeof a === "number" ? a - b : a.localeCompare(b);
    return typeof a === "number" ? 1 : -1;
  };

  const sortBy = (table, column) => {
    const heads = table.tHead.rows[table.tHead.rows.length - 1].cells;
    const falling = heads[column].getAttribute("aria-sort") !== "descending";
    for (const head of heads) head.removeAttribute("aria-sort");
    heads[column].setAttribute("aria-sort", falling ? "descending" : "ascending");
    for (const body of table.tBodies) {
      const rows = [...body.rows].map((row) => [value(row.cells[column]), row]);
      rows.sort((a, b) => (falling ? compare(b[0], a[0]) : compare(a[0], b[0])));
      body.append(...rows.map((pair) => pair[1]));
    }
  };

  const sortable = (table) => {
    if (!table.tHead || table.querySelector("[rowspan], [colspan]")) return;
    const heads = table.tHead.rows[table.tHead.rows.length - 1].cells;
    [...heads].forEach((head, column) => {
      if (!head.textContent.trim()) return;
      const button = make("button", { type: "button", class: "sort", onclick: () => sortBy(table, column) });
      button.append(...head.childNodes);
      head.append(button);
    });
  };

  const filterable = (table) => {
    const rows = [...table.tBodies].flatMap((body) => [...body.rows]);
    if (rows.length < 8) return;
    const words = table.caption ? table.caption.textContent : "this table";
    const left = make("span", { class: "note", role: "status" });
    const input = make("input", {
      type: "search", placeholder: "filter", "aria-label": `Filter ${words}`, class: "filter",
      oninput: () => {
        const wanted = input.value.toLowerCase();
        let shown = 0;
        for (const row of rows) {
          row.hidden = !row.textContent.toLowerCase().includes(wanted);
          shown += row.hidden ? 0 : 1;
        }
        left.textContent = wanted ? ` ${shown} of ${rows.length} rows` : "";
      },
    });
    table.parentElement.before(make("p", { class: "filters" }, input, left));
  };

  const explore = (data, section) => {
    // As wide as the page is at first: scaled down, its letters could not be read on a phone.
    const WIDTH = Math.max(300, Math.min(900, document.querySelector("main").clientWidth - 28)), HEIGHT = 190, LEFT = 70, BOTTOM = 22, COLOURS = 6;
    const plot = WIDTH - LEFT - 10, high = HEIGHT - BOTTOM - 8;
    const state = { from: 0, to: data.bins, group: "owners", picked: null, drag: null };
    const COLUMN = { owners: 3, devices: 1, kinds: 2 };
    const names = () => data[state.group];
    const range = () => state.picked || [state.from, state.to];
    const seconds = (bin) => (bin * data.bin_ns) / 1e9;

    // What a device of a stack does for another one is counted where it was asked for. By device, each one has its own.
    const counts = (row) => state.group === "devices" || !row[8];
    const stacked = data.rows.some((row) => row[8]);

    // Bios, bytes, sum and longest of Q2C of the rows that `of` chooses, by the group's number.
    const sums = (of) => {
      const found = new Map();
      for (const row of data.rows) {
        if (!counts(row) || !of(row)) continue;
        const key = row[COLUMN[state.group]];
        const sum = found.get(key) || [0, 0, 0, 0];
        sum[0] += row[4]; sum[1] += row[5]; sum[2] += row[6]; sum[3] = Math.max(sum[3], row[7]);
        found.set(key, sum);
      }
      return [...found].sort((a, b) => b[1][1] - a[1][1]);
    };

    const svg = make("svg", {
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "figure timeline", tabindex: "0", role: "application",
      "aria-label": "Bytes completed over time. Arrow keys move, plus and minus zoom, Escape shows all.",
    });
    const hover = make("p", { class: "note", role: "status", id: "explore-hover" });
    const table = make("div", { id: "explore-table" });
    const command = make("code", { id: "explore-command" });
    const head = make("p", { id: "explore-range", class: "key" });

    const draw = () => {
      svg.replaceChildren();
      const shown = state.to - state.from;
      const order = sums((row) => row[0] >= state.from && row[0] < state.to).map((pair) => pair[0]);
      const colour = new Map(order.map((key, at) => [key, at < COLOURS - 1 ? at : COLOURS - 1]));
      // Never more columns than can be seen.
      const columns = Math.min(shown, 300), each = shown / columns;
      const bars = Array.from({ length: columns }, () => new Array(COLOURS).fill(0));
      for (const row of data.rows) {
        if (!counts(row) || row[0] < state.from || row[0] >= state.to) continue;
        bars[Math.min(columns - 1, Math.floor((row[0] - state.from) / each))][colour.get(row[COLUMN[state.group]])] += row[5];
      }
      const most = Math.max(1, ...bars.map((bar) => bar.reduce((a, b) => a + b, 0)));
      bars.forEach((bar, at) => {
        let y = HEIGHT - BOTTOM;
        bar.forEach((bytes, c) => {
          if (bytes === 0) return;
          // What there is little of is seen all the same.
          const h = Math.max(1.5, (bytes / most) * high);
          y -= h;
          svg.append(make("rect", {
            x: LEFT + (at * plot) / columns, y: Math.max(2, y), width: Math.max(1, plot / columns - 0.3), height: h,
            style: `fill: var(--c${c})`,
          }));
        });
      });
      const tick = (x, words, anchor) => svg.append(make("text", { x, y: HEIGHT - 6, class: "tick", "text-anchor": anchor }, words));
      tick(LEFT, `${seconds(state.from).toFixed(3)} s`, "start");
      tick(LEFT + plot, `${seconds(state.to).toFixed(3)} s`, "end");
      const perSecond = most / (each * data.bin_ns / 1e9);
      svg.append(make("text", { x: LEFT - 6, y: 14, class: "tick", "text-anchor": "end" }, `${size(perSecond)}/s`));
      if (state.picked) {
        const x = (bin) => LEFT + ((bin - state.from) / shown) * plot;
        const [a, b] = state.picked;
        svg.append(make("rect", { x: x(a), y: 0, width: Math.max(1, x(b) - x(a)), height: HEIGHT - BOTTOM, class: "picked" }));
      }
      list(order, colour);
    };

    const list = (order, colour) => {
      const [from, to] = range();
      const found = sums((row) => row[0] >= from && row[0] < to);
      const length = (to - from) * data.bin_ns / 1e9;
      const total = found.reduce((sum, pair) => sum + pair[1][0], 0);
      head.textContent = `${seconds(from).toFixed(3)} s to ${seconds(to).toFixed(3)} s: ${total.toLocaleString("en")} bios` +
        (state.group === "devices" && stacked ? ", on each device of a stack" : "") + (state.picked ? " (selected)" : "");
      command.textContent = data.command.replace("FROM", seconds(from).toFixed(6)).replace("TO", seconds(to).toFixed(6));
      const rows = found.map(([key, [bios, bytes, q2c, longest]]) => make("tr", {},
        make("td", {}, make("span", { class: "figure swatch", style: `background: var(--c${colour.get(key) ?? COLOURS - 1})` }),
          ` ${names()[key] ?? "?"}`),
        make("td", { class: "num" }, bios.toLocaleString("en")), make("td", { class: "num" }, size(bytes)),
        make("td", { class: "num" }, `${size(bytes / length)}/s`), make("td", { class: "num" }, time(q2c / Math.max(1, bios))),
        make("td", { class: "num" }, time(longest))));
      const heads = [{ owners: "owner", devices: "device", kinds: "operation" }[state.group], "bios", "bytes", "rate",
        "mean Q2C", "longest Q2C"];
      const made = make("table", {}, make("caption", {}, "Of this range"),
        make("thead", {}, make("tr", {}, ...heads.map((words, at) => make("th", { class: at ? "num" : undefined }, words)))),
        make("tbody", {}, ...rows));
      table.replaceChildren(make("div", { class: "scroll" }, made));
      sortable(made);
    };

    const binAt = (event) => {
      const box = svg.getBoundingClientRect();
      const x = ((event.clientX - box.left) / box.width) * WIDTH;
      const part = Math.min(1, Math.max(0, (x - LEFT) / plot));
      return state.from + part * (state.to - state.from);
    };
    const zoom = (factor, middle) => {
      const width = Math.min(data.bins, Math.max(4, Math.round((state.to - state.from) * factor)));
      const from = Math.round(middle - (middle - state.from) * (width / (state.to - state.from)));
      move(Math.max(0, Math.min(data.bins - width, from)), width);
    };
    const move = (from, width) => {
      state.from = Math.max(0, Math.min(data.bins - width, from));
      state.to = Math.min(data.bins, state.from + width);
      draw();
    };
    svg.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.shiftKey && document.activeElement !== svg) return;
      event.preventDefault();
      zoom(event.deltaY > 0 ? 1.4 : 1 / 1.4, binAt(event));
    }, { passive: false });
    svg.addEventListener("pointerdown", (event) => {
      state.drag = Math.floor(binAt(event));
      svg.focus();
      svg.setPointerCapture(event.pointerId);
    });
    svg.addEventListener("pointermove", (event) => {
      const bin = Math.floor(binAt(event));
      if (state.drag !== null) {
        state.picked = [Math.min(state.drag, bin), Math.min(data.bins, Math.max(state.drag, bin) + 1)];
        draw();
      }
      const there = sums((row) => row[0] === bin).slice(0, 3);
      hover.textContent = `${seconds(bin).toFixed(3)} s: ` +
        (there.map(([key, sum]) => `${names()[key]} ${size(sum[1])}`).join(", ") || "nothing");
    });
    svg.addEventListener("pointerup", (event) => {
      if (state.drag !== null && Math.floor(binAt(event)) === state.drag) state.picked = null;
      state.drag = null;
      draw();
    });
    svg.addEventListener("dblclick", () => { state.picked = null; move(0, data.bins); });
    svg.addEventListener("keydown", (event) => {
      const width = state.to - state.from, middle = (state.from + state.to) / 2, step = Math.max(1, Math.round(width / 8));
      const keys = {
        ArrowLeft: () => move(state.from - step, width), ArrowRight: () => move(state.from + step, width),
        "+": () => zoom(0.5, middle), "-": () => zoom(2, middle), Escape: () => { state.picked = null; move(0, data.bins); },
        Enter: () => { state.picked = [state.from, state.to]; draw(); },
      };
      if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
    });
    const select = make("select", { id: "explore-group", onchange: () => { state.group = select.value; draw(); } },
      ...[["owners", "owner"], ["devices", "device"], ["kinds", "operation"]].map(([id, words]) => make("option", { value: id }, words)));
    const button = (words, act) => make("button", { type: "button", onclick: act }, words);
    const zoomIn = () => { if (state.picked) { const [a, b] = state.picked; state.picked = null; move(a, Math.max(1, b - a)); } else zoom(0.5, (state.from + state.to) / 2); };
    document.getElementById("explore-here").append(
      make("p", { class: "note" }, "Drag over the timeline to select a range: the table follows. With the timeline in focus, the wheel, ",
        "arrows, + and − zoom and move; Escape shows all. Flushes, which move no data, are not in it. The sections further down are of the whole trace."),
      make("p", { class: "filters" }, make("label", { for: "explore-group" }, "by "), select, " ",
        button("zoom in", zoomIn), " ", button("zoom out", () => zoom(2, (state.from + state.to) / 2)), " ",
        button("all", () => { state.picked = null; move(0, data.bins); })),
      svg, hover, head, table, make("p", { class: "command" }, "All about this range: ", command));
    section.hidden = false;
    const first = document.querySelector("nav a");
    if (first) first.after(make("a", { href: "#explore-heading" }, "Explore"));
    draw();
  };

  document.querySelectorAll("main table").forEach((table) => { sortable(table); filterable(table); });
  const data = document.getElementById("explore-data");
  if (data) explore(JSON.parse(data.textContent), document.getElementById("explore"));
})();
