// What a page costs in Chromium. node measure.mjs CHROMIUM PAGE; prints one JSON object.
import { chromium } from "playwright-core";
import { statSync } from "node:fs";

const [browserPath, page] = process.argv.slice(2);
const RUNS = 5;
const runs = [];
for (let run = 0; run < RUNS; run += 1) {
  const browser = await chromium.launch({ executablePath: browserPath, args: ["--no-sandbox", "--enable-precise-memory-info"] });
  const tab = await browser.newPage({ viewport: { width: 1280, height: 900 } });
  const session = await tab.context().newCDPSession(tab);
  await session.send("Performance.enable");
  await tab.goto(`file://${page}`);
  const paint = await tab.evaluate(() => new Promise((done) => {
    new PerformanceObserver((list) => list.getEntriesByName("first-contentful-paint").forEach((one) => done(one.startTime)))
      .observe({ type: "paint", buffered: true });
  }));
  // From the click to the frame that shows the timeline zoomed.
  const zoom = await tab.evaluate(() => new Promise((done) => {
    const button = [...document.querySelectorAll("#explore button")].find((one) => one.textContent === "zoom in");
    const begin = performance.now();
    button.click();
    requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - begin)));
  }));
  const { metrics } = await session.send("Performance.getMetrics");
  const heap = metrics.find((one) => one.name === "JSHeapUsedSize").value;
  const nodes = metrics.find((one) => one.name === "Nodes").value;
  runs.push({ first_picture_ms: paint, zoom_ms: zoom, script_heap_bytes: heap, nodes });
  await browser.close();
}
console.log(JSON.stringify({ page_bytes: statSync(page).size, runs }));
