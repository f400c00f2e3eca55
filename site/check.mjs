// check.mjs DIRECTORY: opens every page in a browser, as a reader does, and says what is wrong with it.
//
// Called by test/bin/check-site. Each page is opened from its file at two widths and in two schemes of colours. A check that
// has nothing to look at has failed.
import { createRequire } from 'node:module';
import fs from 'node:fs';
import path from 'node:path';
import { pathToFileURL, fileURLToPath } from 'node:url';

const require = createRequire(new URL('../tmp_cache/site/', import.meta.url));
const puppeteer = require('puppeteer-core');
const folder = path.resolve(process.argv[2]);
const files = fs.readdirSync(folder, { recursive: true }).filter((name) => name.endsWith('.html')).sort();
const widths = { desk: { width: 1280, height: 900 }, phone: { width: 360, height: 740, isMobile: true, hasTouch: true } };
const root = pathToFileURL(folder).href;
let passed = 0;
let failed = 0;

function check(name, problems)
{
	if (problems.length === 0)
		passed++;
	else
	{
		failed++;
		console.log(`not ok - ${name}\n${problems.map((problem) => '  ' + problem).join('\n')}`);
	}
}

const tabs = new Map();
let problems = [];

// The tab of a width, in which a page has been opened; what it complains about goes to problems.
async function opened(browser, file, width, scheme)
{
	const tab = tabs.get(width) ?? await browser.newPage();

	if (!tabs.has(width))
	{
		tab.setDefaultTimeout(120000);
		tab.on('console', (message) => { if (['error', 'warn'].includes(message.type())) problems.push(message.text()); });
		tab.on('pageerror', (error) => problems.push(String(error)));
		tab.on('requestfailed', (request) => problems.push(`${request.url()} cannot be had`));
		tab.on('request', (request) => { if (!/^(file|data):/.test(request.url())) problems.push(`${request.url()} is asked for`); });
		await tab.setViewport(widths[width]);
		tabs.set(width, tab);
	}
	problems = [];
	await tab.bringToFront();
	await tab.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: scheme }]);
	await tab.goto(`${root}/${file}`);
	return tab;
}

// Whatever is clicked or pressed has to lead there.
async function leads_to(tab, wanted, act)
{
	await Promise.all([tab.waitForNavigation({ timeout: 60000 }), act()]).catch((error) => problems.push(String(error)));
	if (!tab.url().endsWith(wanted))
		problems.push(`opens ${tab.url()}`);
}

// Wider than the window is what scrolls by itself, and nothing else.
function overflows()
{
	const width = document.documentElement.clientWidth;
	const scrolls = (element) => element && (/(auto|scroll)/.test(getComputedStyle(element).overflowX) || scrolls(element.parentElement));

	scrollTo(1000, 0);
	return (scrollX > 0 || document.documentElement.scrollWidth > width) ? [`scrolls sideways, by ${document.documentElement.scrollWidth - width}`].concat(
		[...document.querySelectorAll('body *')].filter((each) => each.getBoundingClientRect().right > width + 1 && !scrolls(each)).slice(0, 3)
			.map((each) => `${each.tagName} ${each.className}: ${each.textContent.slice(0, 60)}`)) : [];
}

// Texts whose contrast to what is behind them is less than 4.5 to 1.
function pale()
{
	const numbers = (color) => color.match(/[\d.]+/g).map(Number);
	const luminance = (color) =>
	{
		const [r, g, b] = numbers(color).map((part) => part / 255).map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
		return 0.2126 * r + 0.7152 * g + 0.0722 * b;
	};
	const behind = (element) =>
	{
		const color = element ? getComputedStyle(element).backgroundColor : 'rgb(255, 255, 255)';
		return numbers(color)[3] === 0 ? behind(element.parentElement) : color;
	};
	const found = new Map();
	const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);

	while (texts.nextNode())
	{
		const element = texts.currentNode.parentElement;

		if (!texts.currentNode.data.trim() || !element.checkVisibility({ opacityProperty: true }))
			continue;
		const pair = [getComputedStyle(element).color, behind(element)];
		const [dark, light] = pair.map(luminance).sort((a, b) => a - b);
		if ((light + 0.05) / (dark + 0.05) < 4.5)
			found.set(pair.join(' on '), texts.currentNode.data.trim().slice(0, 40));
	}
	return [...found].map(([pair, text]) => `${pair}: ${text}`);
}

function background()
{
	return Math.max(...getComputedStyle(document.body).backgroundColor.match(/\d+/g).map(Number));
}

function pictures()
{
	return Promise.all([...document.images].map(async (image) =>
	{
		image.loading = 'eager';
		return image.decode().then(() => image.alt ? '' : `${image.src} has no text`, () => `${image.src} is no picture`);
	}));
}

function links()
{
	return { ids: [...document.querySelectorAll('[id]')].map((each) => each.id), links: [...document.querySelectorAll('a[href]')].map((each) => each.href) };
}

// Links of all pages, against the files and the anchors there are.
function check_links(found)
{
	for (const [file, { ids, links }] of found)
	{
		const problems = links.length === 0 ? ['no link'] : [];

		if (new Set(ids).size !== ids.length)
			problems.push(`twice: ${ids.filter((id, i) => ids.indexOf(id) !== i).join(', ')}`);
		for (const link of new Set(links.filter((each) => !/^https:/.test(each))))
		{
			const [address, fragment] = link.split('#');
			const wanted = address.startsWith('file:') ? path.relative(folder, fileURLToPath(address)) : '';

			if (!wanted || wanted.startsWith('..') || !fs.existsSync(path.join(folder, wanted)))
				problems.push(`${link}: no such page`);
			else if (fragment !== undefined && !found.get(wanted)?.ids.includes(decodeURIComponent(fragment)))
				problems.push(`${wanted}: no #${fragment}`);
		}
		check(`links of ${file}`, problems);
	}
}

// Types and opens, as a reader does.
async function check_search(browser, width, from, text, wanted, key)
{
	const tab = await opened(browser, from, width, 'light');

	await tab.keyboard.press('/');
	await tab.keyboard.type(text);
	await tab.waitForSelector('#results:not([hidden]) [role="option"]');
	await leads_to(tab, wanted, () => key ? tab.keyboard.press(key) : tab.click('#results [role="option"] a'));
	problems.push(...await tab.evaluate(() =>
	{
		const target = document.querySelector(':target')?.getBoundingClientRect();
		return target && target.top >= 50 && target.top < innerHeight ? [] : ['the heading is not in view'];
	}));
	check(`"${text}" is found at the width of a ${width}`, problems);
}

// Each heading of each page is among the results when it is typed, with the name of its page.
async function check_search_all(browser, from)
{
	const tab = await opened(browser, from, 'desk', 'light');
	const missing = await tab.evaluate(() =>
	{
		const field = document.querySelector('.search input');
		const type = (text) =>
		{
			field.value = text;
			field.dispatchEvent(new Event('input'));
			return [...document.querySelectorAll('#results a')].map((each) => each.getAttribute('href').replace(/^(\.\.?\/)+/, ''));
		};
		const lost = search_index.filter((entry) => !type(`${entry.title} ${entry.page}`).includes(entry.address)).map((entry) => `${entry.title}: not found`);

		if (type('no such heading').length > 0 || !document.querySelector('#results .none'))
			lost.push('what is not there is found');
		return search_index.length < 100 ? [...lost, 'hardly anything can be found'] : lost;
	});

	check('every heading is found', [...problems, ...missing]);
}

async function check_menu(browser)
{
	const tab = await opened(browser, 'index.html', 'phone', 'dark');

	await tab.tap('.menu');
	await tab.waitForSelector('#pages a[href="doc/jobs.html"]', { visible: true });
	await leads_to(tab, 'doc/jobs.html', () => tab.tap('#pages a[href="doc/jobs.html"]'));
	check('the list of pages opens one on a phone', problems);
}

// root has no sandbox, and what is shown is our own text
const browser = await puppeteer.launch({ executablePath: process.env.CHROMIUM, args: ['--no-sandbox', '--disable-gpu'], timeout: 120000, protocolTimeout: 600000 });
const found = new Map();
check('make site has found no link to nothing', process.env.BUILT === '0' ? [] : ['see above']);
for (const file of files)
	for (const width of Object.keys(widths))
	{
		const tab = await opened(browser, file, width, 'light');

		for (const scheme of ['light', 'dark'])
		{
			await tab.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: scheme }]);
			problems.push(...await tab.evaluate(overflows), ...await tab.evaluate(pale));
			if ((await tab.evaluate(background) < 128) !== (scheme === 'dark'))
				problems.push(`is not ${scheme}`);
			if (scheme === 'light')
				problems.push(...(await tab.evaluate(pictures)).filter(Boolean));
			if (!found.has(file))
				found.set(file, await tab.evaluate(links));
			check(`${file}, ${width}, ${scheme}`, problems);
			problems = [];
		}
	}
check_links(found);
await check_search(browser, 'desk', 'index.html', 'nothing runs away', 'doc/jobs.html#nothing-runs-away', 'Enter');
await check_search(browser, 'desk', 'src/job/index.html', 'create_retention', 'doc/reference.html#sweepcreate_retentiontarget-text-age_column-text-keep-interval---text', '');
await check_search(browser, 'phone', 'doc/reference.html', 'max_running_jobs', 'doc/reference.html#row-pg_sweepmax_running_jobs', '');
await check_search_all(browser, 'doc/jobs.html');
await check_menu(browser);
await browser.close();
console.log(`${passed} passed, ${failed} failed`);
process.exitCode = failed ? 1 : 0;
