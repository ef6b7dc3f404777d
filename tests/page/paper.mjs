// How many sheets of A4 a page takes. node paper.mjs CHROMIUM PAGE
import { chromium } from "playwright-core";

const [browserPath, page] = process.argv.slice(2);
const browser = await chromium.launch({ executablePath: browserPath, args: ["--no-sandbox"] });
const tab = await browser.newPage();
await tab.goto(`file://${page}`);
const pdf = await tab.pdf({ format: "A4" });
await browser.close();
// Each sheet is an object of this type.
console.log((pdf.toString("latin1").match(/\/Type\s*\/Page\b/g) || []).length);
