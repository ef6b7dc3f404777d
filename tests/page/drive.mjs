// Opens a page of flashscope in Chromium and does what a reader does. Prints one JSON object of what it saw.
// node drive.mjs CHROMIUM PAGE SCREENSHOTS
import { chromium } from "playwright-core";
import { createRequire } from "node:module";

const [browserPath, page, shots] = process.argv.slice(2);
const axe = createRequire(import.meta.url).resolve("axe-core/axe.min.js");
const browser = await chromium.launch({ executablePath: browserPath, args: ["--no-sandbox"] });
const seen = { errors: [], requests: [] };

const open = async (options = {}) => {
  const context = await browser.newContext({ viewport: { width: 1200, height: 900 }, ...options });
  const tab = await context.newPage();
  tab.on("pageerror", (error) => seen.errors.push(String(error)));
  tab.on("console", (message) => { if (message.type() === "error") seen.errors.push(message.text()); });
  tab.on("request", (request) => { if (!request.url().startsWith("file:")) seen.requests.push(request.url()); });
  const begin = Date.now();
  await tab.goto(`file://${page}`);
  seen.open_ms ??= Date.now() - begin;
  return tab;
};

const tab = await open();
seen.explores = await tab.locator("#explore").isVisible();
if (seen.explores) {
  const first = () => tab.locator("#explore-table tbody tr td").allInnerTexts();
  const range = () => tab.locator("#explore-range").innerText();
  seen.whole = await range();
  seen.whole_rows = await first();
  const box = await tab.locator("svg.timeline").boundingBox();
  const at = (part) => [box.x + box.width * part, box.y + box.height / 2];
  // The first half of the plot: from 70 to 890 of 900.
  await tab.mouse.move(...at(72 / 900));
  await tab.mouse.down();
  await tab.mouse.move(...at(480 / 900));
  await tab.mouse.up();
  seen.picked = await range();
  seen.picked_rows = await first();
  seen.command = await tab.locator("#explore-command").innerText();
  await tab.getByRole("button", { name: "zoom in" }).click();
  seen.zoomed = await range();
  await tab.mouse.move(...at(0.5));
  seen.hover = await tab.locator("#explore-hover").innerText();
  await tab.locator("svg.timeline").focus();
  await tab.keyboard.press("Escape");
  seen.reset = await range();
  await tab.keyboard.press("+");
  seen.keyboard = await range();
  await tab.keyboard.press("Escape");
  await tab.locator("#explore-group").selectOption("kinds");
  seen.by_kind = await first();
}
// Commands and code of the advice, with the first font of each.
seen.typed = await tab.locator(".findings code").evaluateAll((all) =>
  all.map((one) => [one.textContent, getComputedStyle(one).fontFamily.split(",")[0]]));
// The first table that can be sorted and has several rows.
const table = tab.locator("main table:not(details table):has(tbody tr:nth-child(3)):has(button.sort)").last();
if (await table.count()) {
  const last = table.locator("thead tr:last-child th").last();
  const column = () => table.locator("tbody tr td:last-child").allInnerTexts();
  await last.getByRole("button").click();
  seen.sorted = [await last.getAttribute("aria-sort"), await column()];
  await last.getByRole("button").click();
  seen.sorted_back = [await last.getAttribute("aria-sort"), await column()];
}
const filter = tab.locator("input.filter:visible").first();
if (await filter.count()) {
  await filter.fill("no row has these words");
  seen.filtered_all = await filter.locator("xpath=..").innerText();
  await filter.fill("");
}
seen.axe = await (async () => {
  // The page's policy refuses further scripts, as it should: axe runs in a context without it.
  const free = await open({ bypassCSP: true });
  await free.addScriptTag({ path: axe });
  const { violations } = await free.evaluate(() => window.axe.run());
  return violations.filter((one) => ["serious", "critical"].includes(one.impact)).map((one) => `${one.id}: ${one.nodes[0].html.slice(0, 200)}`);
})();
await tab.screenshot({ path: `${shots}/light.png` });
const narrow = await open({ viewport: { width: 400, height: 800 }, colorScheme: "dark" });
seen.narrow_overflow = await narrow.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
await narrow.screenshot({ path: `${shots}/narrow-dark.png` });
const plain = await open({ javaScriptEnabled: false });
seen.plain = { explores: await plain.locator("#explore").isVisible(), tables: await plain.locator("main table").count() };
seen.tables = await tab.locator("main table:not(#explore table)").count();
await tab.pdf({ path: `${shots}/print.pdf`, format: "A4" });
await browser.close();
console.log(JSON.stringify(seen));
