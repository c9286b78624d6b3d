// Tests the site in Chromium under a content security policy without exceptions.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { after, before, test } from 'node:test'
import { chromium } from 'playwright-core'

const env = process.env
const url = env.SITE_URL // base URL of both releases
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')
const pages = JSON.parse(env.SITE_PAGES)
const patience = 30_000 // enough for a machine that is busy with other suites

let browser

before(async () => {
  browser = await chromium.launch({
    executablePath: env.RIG_CHROMIUM, headless: true,
    args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
  })
})
after(async () => { await browser?.close() })

// open opens a page in a new browser context. end fails if the page violated the policy, had errors, or sent requests
// to other servers.
async function open(path, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, locale: 'en-GB', ...options })
  context.setDefaultTimeout(patience)
  const page = await context.newPage()
  const wrong = []
  page.on('pageerror', (e) => wrong.push(`error: ${e.message}`))
  page.on('console', (m) => { if (['error', 'warning'].includes(m.type())) wrong.push(`${m.type()}: ${m.text()}`) })
  page.on('request', (r) => { if (!r.url().startsWith(`${url}/`)) wrong.push(`request to ${r.url()}`) })
  await page.goto(url + path)
  await page.getByRole('heading', { level: 1 }).first().waitFor()
  return { page, end: async () => { await context.close(); assert.deepEqual(wrong, [], path) } }
}

// accessible checks a page by the rules of WCAG 2.2 AA and the best practices of axe.
async function accessible(page, what) {
  const cdp = await page.context().newCDPSession(page)
  await cdp.send('Runtime.evaluate', { expression: axe, allowUnsafeEvalBlockedByCSP: true })
  const { result, exceptionDetails } = await cdp.send('Runtime.evaluate', {
    expression: 'axe.run(document, { resultTypes: ["violations"] }).then((r) => JSON.stringify(r.violations.map((v) => v.id + ": " + v.nodes.map((n) => n.html.slice(0, 160) + " " + n.failureSummary).slice(0, 5).join(" | "))))',
    awaitPromise: true, returnByValue: true, allowUnsafeEvalBlockedByCSP: true,
  })
  assert.equal(exceptionDetails, undefined, JSON.stringify(exceptionDetails))
  assert.deepEqual(JSON.parse(result.value), [], what)
  await cdp.detach()
}

// samples has one or more pages of each kind.
const samples = ['index', 'install', 'contract', 'resources', 'start/auditor', 'adr/0001-audit-before-effect'].filter((p) => pages.includes(p))

for (const colorScheme of ['light', 'dark']) {
  test(`pages in ${colorScheme} pass axe`, async () => {
    for (const name of samples) {
      const { page, end } = await open(`/main/${name}.html`, { colorScheme, reducedMotion: 'reduce' })
      await accessible(page, `${name} in ${colorScheme}`)
      await end()
    }
  })
}

test('no page is wider than a telephone', async () => {
  const { page, end } = await open('/main/', { viewport: { width: 320, height: 640 } })
  for (const name of pages) {
    await page.goto(`${url}/main/${name}.html`, { waitUntil: 'domcontentloaded' })
    const wide = await page.evaluate(() => document.documentElement.scrollWidth)
    assert.ok(wide <= 320, `${name} is ${wide} wide`)
  }
  await accessible(page, 'the last page at 320')
  await end()
})

test('search finds a word, and leads there', async () => {
  const { page, end } = await open('/main/')
  await page.getByRole('button', { name: 'Search' }).first().click()
  await page.locator('#localsearch-input').fill('break-glass')
  const result = page.locator('.result').first()
  await result.waitFor()
  await accessible(page, 'results of a search')
  await result.click()
  await page.waitForFunction(() => /[Bb]reak-glass/.test(document.querySelector('main, .VPContent').textContent))
  await end()
})

test('dark mode is a switch, and stays', async () => {
  const { page, end } = await open('/main/', { colorScheme: 'light' })
  const dark = () => page.evaluate(() => document.documentElement.classList.contains('dark'))
  assert.equal(await dark(), false)
  await page.locator('.VPNavBar').getByRole('switch').first().click()
  assert.equal(await dark(), true)
  await page.reload()
  assert.equal(await dark(), true)
  await end()
})

test('a release leads to the same page of another one, or to its first', async () => {
  const { page, end } = await open('/main/install.html')
  const select = page.locator('#version')
  await page.waitForFunction(() => document.querySelectorAll('#version option').length === 2)
  assert.equal(await select.inputValue(), 'main')
  await select.selectOption('v0.1.0')
  await page.waitForURL(`${url}/v0.1.0/install.html`)
  await page.getByText('Release v0.1.0, made from').waitFor()
  await page.waitForFunction(() => document.querySelectorAll('#version option').length === 2)
  await page.locator('#version').selectOption('main')
  await page.waitForURL(`${url}/main/install.html`)
  await end()
})

test('the first page is that of the newest release', async () => {
  const { page, end } = await open('/')
  await page.waitForURL(`${url}/v0.1.0/`)
  await end()
})
