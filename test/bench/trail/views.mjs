// Measures how long each view of the console takes, from its address until it is completely shown.
import { chromium } from 'playwright-core'

const { RIG_CHROMIUM, KEYSERVER_URL: url, KEYSERVER_PASSWORD, KEYSERVER_KEY } = process.env
const key = encodeURIComponent(KEYSERVER_KEY)
const times = 7

const browser = await chromium.launch({
  executablePath: RIG_CHROMIUM, headless: true,
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
})
const page = await (await browser.newContext({ viewport: { width: 1280, height: 900 }, ignoreHTTPSErrors: true })).newPage()
page.setDefaultTimeout(120_000)
await page.goto(`${url}/console/`)
await page.getByLabel('Name').fill('admin')
await page.getByLabel('Password').fill(KEYSERVER_PASSWORD)
await page.getByRole('button', { name: 'Log in', exact: true }).click()
await page.getByRole('button', { name: 'Log out' }).waitFor()

const shown = (address) => page.waitForFunction((to) => document.querySelector('main').dataset.view === to && !document.querySelector('main').hasAttribute('aria-busy'), address, { polling: 5 })
const took = []
for (const address of [
  '#/overview', '#/trust', '#/trust?name=Peer%201', '#/told?peer=2', `#/why?operation=hmacData&hiddenLink=${key}`, `#/who?operation=hmacData&hiddenLink=${key}`,
  '#/audit', '#/audit?outcome=refused', '#/audit?address=198.51.100.7', '#/audit?session=000000000000ffff', '#/sessions', '#/approvals?all=yes', '#/keys',
]) {
  const all = []
  for (let i = 0; i < times; i++) {
    await page.evaluate(() => { location.hash = '#/login' })
    await page.waitForFunction((to) => document.querySelector('main').dataset.view !== to, address)
    const began = performance.now()
    await page.evaluate((to) => { location.hash = to }, address)
    await shown(address)
    all.push(performance.now() - began)
    if (address === '#/trust' && !(await page.locator('main').innerText()).includes('200 of 200')) throw new Error('not every peer is there')
    if (await page.locator('main .notice.bad').count() > 0) throw new Error(`${address} shows a failure: ${await page.locator('main').innerText()}`)
  }
  all.sort((a, b) => a - b)
  took.push({ view: address, median: all[Math.floor(times / 2)], worst: all.at(-1) })
}
await browser.close()
console.log(JSON.stringify(took))
