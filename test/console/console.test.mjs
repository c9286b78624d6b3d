// Tests the console in Chromium against a real server.
import assert from 'node:assert/strict'
import { mkdirSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { chromium } from 'playwright-core'
import { Client, codeOf, password, ProofKey } from './client/index.js'

const env = process.env
const url = env.KEYSERVER_URL
const screenshots = env.RIG_SCREENSHOTS
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')
const widths = [320, 768, 1280, 2560]
const patience = 60_000 // enough for a machine that is busy with other suites

const secrets = { admin: env.KEYSERVER_PASSWORD, approver: 'a passphrase of the approver', web: 'a passphrase of the web shop' }
const as = async (name) => new Client({ baseUrl: url, credentials: password(name, secrets[name]), proofKey: await ProofKey.generate() })

const der = (file) => readFileSync(file, 'utf8').replace(/-----[^-]+-----|\s/g, '')

let browser, admin, key, policyOperations, policyRole, asked, other

// Creates the data on the server that the tests need.
before(async () => {
  admin = await as('admin')
  const { roles } = await admin.listRoles()
  const role = (name) => roles.find((r) => r.name === name).id
  for (const [name, roleIds] of [['approver', ['Administrator', 'Security Officer', 'Auditor']], ['web', ['Exchanger']]]) {
    await admin.createPasswordPrincipal({ name, password: secrets[name], roleIds: roleIds.map(role) })
  }
  key = await admin.mintKey({ algorithm: 'HMAC-SHA384' })
  await admin.rotateKey({ ttag: key.ttag })
  await admin.mintKey({ algorithm: 'AES-256' })
  const web = await as('web')
  await assert.rejects(web.computeHmac({ hiddenLink: key.ttag, data: new Uint8Array(3) }), (e) => codeOf(e) === 'ACL_DENIED')
  other = await web.getCurrentSession()
  // A trusted peer, and a principal trust that exposes a principal to it.
  const peer = new Client({ baseUrl: env.KEYSERVER_PEER_URL, credentials: password('admin', env.KEYSERVER_PEER_PASSWORD) })
  const info = await peer.getLocalTrustInfo()
  await admin.addTrustedCa({ certificate: (await peer.listAuthorities()).authorities[0].certificate })
  await admin.addTrustedServer({ trustBlob: info.trustBlob, friendlyName: 'Warehouse', description: 'of the north' })
  await admin.createPrincipalTrust({ principalId: other.principal.id, trustedServerSystemId: 2, flag: 'expose' })
  // The principal of the client certificate.
  await admin.addTrustedCa({ certificate: der(`${env.KEYSERVER_CLIENT_CA}.crt`) })
  await admin.enrollCertificates({ certificates: [der(`${env.KEYSERVER_CLIENT}.crt`)], roleIds: [role('Auditor')] })
  // A request that another user must approve.
  const { operations } = await admin.listOperations()
  policyOperations = operations.filter((o) => o.operation === 'hmacData').map((o) => o.id)
  policyRole = (await admin.createRole({ name: 'Former', operations: policyOperations })).role
  await admin.setApprovalPolicy({ rules: [{ operation: 'deleteRole', approvers: 1, duty: 'any' }] })
  asked = await admin.askApproval({ method: 'DELETE', path: `/api/roles/${policyRole.id}`, reason: 'nobody holds it any more' })

  browser = await chromium.launch({
    executablePath: env.RIG_CHROMIUM, headless: true,
    args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync',
      '--short-reporting-delay', `--ignore-certificate-errors-spki-list=${env.KEYSERVER_SPKI}`],
  })
})
after(async () => { await browser?.close() })

// open opens the console in a new browser context. It records policy violations, errors, and requests to other servers.
async function open(options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, locale: 'en-GB', timezoneId: 'UTC', ...options })
  context.setDefaultTimeout(patience)
  const page = await context.newPage()
  const wrong = []
  page.on('pageerror', (e) => wrong.push(`error: ${e.message}`))
  page.on('console', (m) => { if (['error', 'warning'].includes(m.type()) && !/status of 4\d\d|status of 503/.test(m.text())) wrong.push(`${m.type()}: ${m.text()}`) })
  page.on('request', (r) => { if (!r.url().startsWith(`${url}/`)) wrong.push(`request to ${r.url()}`) })
  await page.addInitScript(() => {
    window.violations = []
    addEventListener('securitypolicyviolation', (e) => window.violations.push(`${e.effectiveDirective} ${e.blockedURI} ${e.sourceFile}:${e.lineNumber}`))
  })
  await page.goto(`${url}/console/`)
  return { context, page, wrong }
}

async function login(page, name) {
  await page.getByLabel('Name').fill(name)
  await page.getByLabel('Password').fill(secrets[name])
  await page.getByRole('button', { name: 'Log in', exact: true }).click()
  await page.getByRole('button', { name: 'Log out' }).waitFor()
  await page.getByRole('heading', { level: 1 }).waitFor()
}

// go opens an address of the console and waits until its view is shown.
async function go(page, address) {
  await page.evaluate((to) => { location.hash = to }, address)
  await shown(page, address)
}
const shown = (page, address) => page.waitForFunction((to) => document.querySelector('main').dataset.view === to && !document.querySelector('main').hasAttribute('aria-busy'), address)

// accessible checks a page by the rules of WCAG 2.2 AA and the best practices of axe.
async function accessible(page, what) {
  const cdp = await page.context().newCDPSession(page)
  await cdp.send('Runtime.evaluate', { expression: axe, allowUnsafeEvalBlockedByCSP: true })
  const { result, exceptionDetails } = await cdp.send('Runtime.evaluate', {
    expression: 'axe.run(document, { resultTypes: ["violations"] }).then((r) => JSON.stringify(r.violations.map((v) => v.id + ": " + v.nodes.map((n) => n.html.slice(0, 160) + " " + n.failureSummary).join(" | "))))',
    awaitPromise: true, returnByValue: true, allowUnsafeEvalBlockedByCSP: true,
  })
  assert.equal(exceptionDetails, undefined, JSON.stringify(exceptionDetails))
  assert.deepEqual(JSON.parse(result.value), [], what)
  await cdp.detach()
}

async function picture(page, name) {
  if (!screenshots) return
  mkdirSync(screenshots, { recursive: true })
  await page.screenshot({ path: join(screenshots, `${name}.png`), fullPage: true, animations: 'disabled' })
}

// clean fails if a violation, an error or a request to another server was recorded.
async function clean({ page, wrong }) {
  assert.deepEqual(await page.evaluate(() => window.violations), [])
  assert.deepEqual(wrong, [])
}

// The response of a proxy whose server is down.
const nothing = { status: 500, contentType: 'text/html', body: '<html><script>alert(1)</script>' }
const failures = ({ wrong, ...window }) => ({ ...window, wrong: wrong.filter((w) => !/status of 500/.test(w)) })

// held delays the responses of a route until the test calls the returned function.
async function held(page, url, method) {
  let release
  const released = new Promise((resolve) => { release = resolve })
  await page.route(url, async (route) => {
    if (route.request().method() === method) await released
    await route.fallback()
  })
  return release
}

const current = '**/api/sessions/current'
const alive = async (id) => (await admin.listSessions({ limit: 1000 })).sessions.some((s) => s.id === id)
const stored = (page) => page.evaluate(async () => {
  const of = (r) => new Promise((resolve, reject) => { r.onsuccess = () => resolve(r.result); r.onerror = () => reject(r.error) })
  const db = await of(indexedDB.open('keyserver-console'))
  return (await of(db.transaction('kept').objectStore('kept').get('kept')))?.session.id
})
const until = async (what, is) => {
  for (const end = Date.now() + patience; !(await is()); await new Promise((resolve) => setTimeout(resolve, 100))) assert.ok(Date.now() < end, what)
}

const reported = async () => Number(/keyserver_http_requests_total\{code="OK",method="POST",route="\/console\/reports"\} (\d+)/.exec(await (await fetch(env.KEYSERVER_METRICS)).text())?.[1] ?? 0)

test('a wrong password is refused in the words of the service, and the name stays', async () => {
  const window = await open()
  const { page, context } = window
  await page.getByLabel('Name').fill('admin')
  await page.getByLabel('Password').fill('wrong')
  await page.getByRole('button', { name: 'Log in', exact: true }).click()
  await page.getByText('INVALID_CREDENTIALS').waitFor()
  assert.equal(await page.getByLabel('Name').inputValue(), 'admin')
  await accessible(page, 'a login that was refused')
  await page.getByRole('button', { name: 'Use the certificate of this connection' }).click()
  await page.getByText('INVALID_CREDENTIALS').waitFor()
  await clean(window)
  await context.close()
})

test('a stolen session id is useless, and the key cannot be read', async () => {
  const window = await open()
  const { page, context } = window
  const requests = []
  page.on('request', (r) => { if (r.headers().authorization) requests.push(r.headers()) })
  await login(page, 'admin')
  const stolen = requests.at(-1).authorization.split(' ')[1]
  for (const scheme of ['Bearer', 'DPoP']) {
    const answer = await fetch(`${url}/api/sessions/current`, { headers: { authorization: `${scheme} ${stolen}` } })
    assert.deepEqual([answer.status, (await answer.json()).code], [401, 'PROOF_REQUIRED'])
  }
  const thief = new Client({ baseUrl: url, proofKey: await ProofKey.generate(), session: { sessionId: stolen, id: '', until: Infinity, idle: Infinity, used: 0 } })
  await assert.rejects(thief.listRoles(), (e) => codeOf(e) === 'PROOF_KEY_MISMATCH')
  const stored = await page.evaluate(async () => {
    const of = (r) => new Promise((resolve, reject) => { r.onsuccess = () => resolve(r.result); r.onerror = () => reject(r.error) })
    const db = await of(indexedDB.open('keyserver-console'))
    const { pair } = await of(db.transaction('kept').objectStore('kept').get('kept'))
    return { extractable: pair.privateKey.extractable, exported: await crypto.subtle.exportKey('pkcs8', pair.privateKey).then(() => 'yes', (e) => e.name), local: JSON.stringify({ ...localStorage, ...sessionStorage }) }
  })
  assert.deepEqual(stored, { extractable: false, exported: 'InvalidAccessError', local: '{}' })
  // The session survives a reload in this browser. After a logout, no data remains in it.
  await page.reload()
  await page.getByRole('button', { name: 'Log out' }).click()
  await page.getByText('You are logged out.').waitFor()
  await page.reload()
  await page.getByRole('button', { name: 'Log in', exact: true }).waitFor()
  const mine = new Client({ baseUrl: url, proofKey: await ProofKey.generate(), session: { sessionId: stolen, id: '', until: Infinity, idle: Infinity, used: 0 } })
  await assert.rejects(mine.listRoles(), (e) => codeOf(e) === 'SESSION_NOT_FOUND')
  await clean(window)
  await context.close()
})

test('a logout that the server does not confirm says so, and until when the session lives', async () => {
  const window = await open()
  const { page, context } = window
  await login(page, 'admin')
  const id = await stored(page)
  await page.route(current, (route) => (route.request().method() === 'DELETE' ? route.fulfill(nothing) : route.fallback()))
  await page.getByRole('button', { name: 'Log out' }).click()
  const notice = page.locator('.notices .bad')
  await notice.getByText('The server did not confirm that the session of admin has ended.').waitFor()
  await notice.getByText('HTTP 500').waitFor()
  const last = Date.parse(await notice.locator('time').getAttribute('datetime'))
  const { idleExpiresAt, expiresAt } = (await admin.listSessions({ limit: 1000 })).sessions.find((s) => s.id === id)
  assert.ok(last >= Math.min(Date.parse(idleExpiresAt), Date.parse(expiresAt)) && last < Date.parse(expiresAt), `${new Date(last).toISOString()} of ${idleExpiresAt}, ${expiresAt}`)
  assert.equal(await page.getByText('You are logged out.').count(), 0)
  await accessible(page, 'a logout that failed')
  await page.evaluate(() => { location.hash = '#/keys' })
  assert.equal(await notice.count(), 1)
  // The logout failed, and the browser has deleted the key.
  assert.equal(await stored(page), undefined)
  assert.ok(await alive(id))
  await page.reload()
  await page.getByRole('button', { name: 'Log in', exact: true }).waitFor()
  await clean(failures(window))
  await context.close()
})

test('a logout empties the page before the server answers', async () => {
  const window = await open()
  const { page, context } = window
  await login(page, 'admin')
  await go(page, '#/sessions')
  const id = await stored(page)
  const release = await held(page, current, 'DELETE')
  await page.getByRole('button', { name: 'Log out' }).click()
  await page.getByText('You are logged out in this browser.').waitFor()
  await page.getByRole('button', { name: 'Log in', exact: true }).waitFor()
  assert.equal(await page.locator('table').count(), 0)
  assert.equal(await page.getByRole('button', { name: 'Log out' }).count(), 0)
  assert.ok(await alive(id))
  await until('the key is kept', async () => await stored(page) === undefined)
  release()
  await page.getByText('You are logged out.', { exact: true }).waitFor()
  assert.equal(await alive(id), false)
  await clean(window)
  await context.close()
})

test('a reload while the server fails says so, and goes on or forgets the session', async () => {
  const window = await open()
  const { page, context } = window
  await login(page, 'admin')
  const id = await stored(page)
  let fails = true
  await page.route(current, (route) => (fails && route.request().method() === 'GET' ? route.fulfill(nothing) : route.fallback()))
  const again = async () => {
    await page.reload()
    await page.getByText('admin is logged in in this browser.').waitFor()
    await page.getByText('HTTP 500').waitFor()
    assert.equal(await page.getByLabel('Password').count(), 0)
  }
  await again()
  await accessible(page, 'a session that the server does not know of yet')
  await page.evaluate(() => { location.hash = '#/keys' })
  await page.getByText('HTTP 500').waitFor()
  fails = false
  await page.getByRole('button', { name: 'Try again' }).click()
  await shown(page, '#/keys')
  fails = true
  await again()
  await page.getByRole('button', { name: 'Forget the session here' }).click()
  await page.getByText('You are logged out.', { exact: true }).waitFor()
  await page.getByLabel('Password').waitFor()
  assert.equal(await stored(page), undefined)
  assert.equal(await alive(id), false)
  await clean(failures(window))
  await context.close()
})

test('tabs of a browser have one session, and none shows what is of another one', async () => {
  const window = await open()
  const { page: first, context } = window
  const tab = async () => {
    const page = await context.newPage()
    await page.goto(`${url}/console/`)
    return page
  }
  const user = (page) => page.locator('.self span').innerText()
  const second = await tab()
  await login(first, 'admin')
  await second.getByText('admin has logged in in another tab.').waitFor()
  const ofAdmin = await stored(first)
  // Another user logs in in the second tab. The first tab hides the data of admin at once, and changes to the other
  // user only after a click.
  await login(second, 'web')
  await first.getByText('web has logged in in another tab.').waitFor()
  await first.getByRole('button', { name: 'Log in', exact: true }).waitFor()
  assert.deepEqual([await first.locator('.self').count(), await first.locator('table').count()], [0, 0])
  await accessible(first, 'somebody else has logged in')
  const ofWeb = await stored(second)
  assert.notEqual(ofWeb, ofAdmin)
  await until('the session that was replaced goes on', async () => !(await alive(ofAdmin)))
  assert.equal(await user(second), 'web')
  await first.getByRole('button', { name: 'Continue as web' }).click()
  await first.getByRole('button', { name: 'Log out' }).waitFor()
  assert.equal(await user(first), 'web')
  // A logout in one tab ends the session in all tabs.
  await go(second, '#/approvals')
  await first.getByRole('button', { name: 'Log out' }).click()
  await second.getByText('The session has ended in another tab.').waitFor()
  assert.deepEqual([await second.locator('.self').count(), await second.locator('table').count(), await stored(second)], [0, 0, undefined])
  await until('the session goes on', async () => !(await alive(ofWeb)))
  // A tab deletes only its own session. This tab sends no messages to other tabs and receives none.
  const deaf = await context.newPage()
  await deaf.addInitScript(() => { BroadcastChannel.prototype.postMessage = () => {}; Object.defineProperty(BroadcastChannel.prototype, 'onmessage', { set() {} }) })
  await deaf.goto(`${url}/console/`)
  await login(deaf, 'admin')
  const ofDeaf = await stored(deaf)
  await login(first, 'web')
  await until('the session that was replaced goes on', async () => !(await alive(ofDeaf)))
  const kept = await stored(first)
  await deaf.evaluate(() => { location.hash = '#/keys' })
  await deaf.getByText('The session has ended.').waitFor()
  assert.equal(await stored(deaf), kept) // IndexedDB reads after the tab's own deletion
  await first.reload()
  await first.getByRole('button', { name: 'Log out' }).waitFor()
  assert.equal(await user(first), 'web')
  await clean(window)
  await context.close()
})

test('a login that is overtaken is none', async () => {
  const window = await open()
  const { page, context } = window
  let id
  await page.route('**/api/sessions', async (route) => {
    const response = await route.fetch()
    id = (await response.json()).id
    await route.fulfill({ response })
  })
  const release = await held(page, '**/api/sessions', 'POST')
  await page.getByLabel('Name').fill('admin')
  await page.getByLabel('Password').fill(secrets.admin)
  await page.getByRole('button', { name: 'Log in', exact: true }).click()
  // During this login, another address shows no second login form.
  await page.evaluate(() => { location.hash = '#/approvals' })
  assert.equal(await page.getByLabel('Name').inputValue(), 'admin')
  assert.ok(await page.getByRole('button', { name: 'Log in', exact: true }).isDisabled())
  const second = await context.newPage()
  await second.goto(`${url}/console/`)
  await login(second, 'web')
  await page.getByRole('button', { name: 'Continue as web' }).click()
  await shown(page, '#/approvals')
  const kept = await stored(page)
  const ended = page.waitForResponse((r) => r.request().method() === 'DELETE' && r.url().endsWith('/api/sessions/current'))
  release()
  assert.equal((await ended).status(), 200)
  assert.equal(await alive(id), false)
  assert.deepEqual([await page.locator('.self span').innerText(), await stored(page)], ['web', kept])
  await clean(window)
  await context.close()
})

test('a view that hangs has nothing of the one before, and an answer of null is none', async () => {
  const window = await open()
  const { page, context } = window
  await login(page, 'admin')
  await go(page, '#/sessions')
  await page.getByRole('button', { name: /^End the session/ }).first().waitFor()
  const release = await held(page, '**/api/keys?*', 'GET')
  await page.evaluate(() => { location.hash = '#/keys' })
  await page.getByRole('heading', { level: 1, name: 'Keys' }).waitFor()
  assert.equal(await page.locator('main button, main table, main form').count(), 0)
  await page.getByText('Loading').waitFor()
  await accessible(page, 'a view that hangs')
  release()
  await shown(page, '#/keys')
  await page.locator('tbody tr').first().waitFor()
  await page.route('**/api/audit?*', (route) => route.fulfill({ contentType: 'application/json', body: 'null' }))
  await go(page, '#/audit')
  await page.locator('.notice.bad').getByText('the response to GET /api/audit does not match').waitFor()
  await clean(window)
  await context.close()
})

test('each view, in light and dark, from 320 to 2560 pixels', async () => {
  const window = await open()
  const { page, context } = window
  await picture(page, 'login')
  await login(page, 'admin')
  const refused = (await admin.listAuditEntries({ outcome: 'refused', reason: 'aclDenied' })).entries[0]
  const link = encodeURIComponent(key.ttag)
  for (const [name, address, text] of [
    ['overview', '#/overview', 'Refused requests'], ['trust', '#/trust', 'Warehouse'], ['told', '#/told?peer=2', 'web'],
    ['why', `#/why?operation=hmacData&hiddenLink=${link}&principalId=${other.principal.id}`, 'smallest change'],
    ['who', `#/who?operation=hmacData&hiddenLink=${link}`, 'Encryptor'],
    ['audit', '#/audit?outcome=refused', 'aclDenied'], ['row', `#/row?seq=${refused.seq}`, 'Verify in this browser'],
    ['sessions', '#/sessions', 'this one'], ['approvals', '#/approvals', 'nobody holds it'], ['approval', `#/approval?id=${asked.approvalId}`, 'Request to execute'],
    ['keys', '#/keys', 'Generation'],
  ]) {
    await go(page, address)
    await page.locator('main').getByText(text).first().waitFor()
    assert.equal(await page.locator('main .notice.bad').count(), 0, `${name} shows a failure: ${await page.locator('main').innerText()}`)
    for (const width of widths) {
      await page.setViewportSize({ width, height: 900 })
      const [has, is] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth])
      assert.ok(has <= is, `${name} is ${has} pixels wide in a window of ${is}`)
    }
    for (const [colorScheme, width] of [['light', 1280], ['dark', 320], ...(screenshots ? [['dark', 1280], ['light', 2560]] : [])]) {
      await page.emulateMedia({ colorScheme })
      await page.setViewportSize({ width, height: 900 })
      if (width !== 2560) await accessible(page, `${name}, ${colorScheme}, ${width} pixels`)
      await picture(page, `${name}-${colorScheme}-${width}`)
    }
  }
  await clean(window)
  await context.close()
})

test('what would help is told by name, and what had an end keeps one', async () => {
  const window = await open()
  const { page, context } = window
  await login(page, 'admin')
  await go(page, `#/why?operation=readAudit&principalId=${other.principal.id}`)
  const explanation = page.locator('#explanation')
  await explanation.getByText('give role Auditor').waitFor()
  assert.match(await explanation.innerText(), /Roles that would allow it: Auditor, /)
  // An expired ACL entry.
  const stamp = (when) => { const raw = Buffer.alloc(8); raw.writeBigUInt64BE(BigInt(Date.parse(when))); return raw.toString('base64') }
  const { ttag } = await admin.mintKey({ algorithm: 'HMAC-SHA384' })
  await admin.grantAcl({ ttag, systemId: other.principal.systemId, principalId: other.principal.principalId, rights: ['WRITE'], maxUsage: 7, endTime: stamp('2020-01-01') })
  await go(page, `#/why?operation=hmacData&hiddenLink=${encodeURIComponent(ttag)}&principalId=${other.principal.id}`)
  await explanation.getByText('set entry').waitFor()
  assert.match(await explanation.innerText(), /web [0-9a-f]{16} until 2020-01-01T00:00:00Z[^]*set entry until 20(?!20)[^]* rights READ, WRITE[^]* maxUsage 7/)
  await context.close()
})

test('from a refused row to why, and who can instead', async () => {
  const window = await open()
  const { page, context } = window
  await login(page, 'admin')
  await page.getByRole('link', { name: 'Audit', exact: true }).click()
  await page.getByLabel('Outcome').selectOption('refused')
  await page.getByLabel('Reason').fill('aclDenied')
  await page.getByRole('button', { name: 'Filter' }).click()
  await page.waitForURL(/reason=aclDenied/)
  await shown(page, new URL(page.url()).hash)
  assert.deepEqual([...new Set(await page.locator('tbody td[data-label=Outcome]').allInnerTexts())], ['refused'])
  await page.getByRole('link', { name: 'Why?' }).first().click()
  const explanation = page.locator('#explanation')
  await explanation.getByText('Refused').first().waitFor()
  assert.match(await explanation.innerText(), /ACL_DENIED[^]*set entry/)
  await explanation.getByRole('link', { name: 'Who can?' }).click()
  await page.getByRole('cell', { name: /admin/ }).first().waitFor()
  // The filter accepts an id as rows show it and in decimal. Times show their time zone.
  for (const id of [other.principal.id, BigInt(`0x${other.principal.id}`).toString()]) {
    await go(page, '#/audit')
    await page.getByLabel('Principal').fill(id)
    await page.getByRole('button', { name: 'Filter' }).click()
    await page.waitForURL(new RegExp(`principalId=${id}`))
    await shown(page, new URL(page.url()).hash)
    assert.deepEqual([...new Set(await page.locator('tbody td[data-label=Principal]').allInnerTexts())], [other.principal.id])
  }
  assert.match(await page.locator('tbody td[data-label=Time]').first().innerText(), / UTC$/)
  await clean(window)
  await context.close()
})

test('a receipt is verified in the browser, and a forged one is refused', async () => {
  const window = await open()
  const { page, context } = window
  await login(page, 'admin')
  const { entries } = await admin.listAuditEntries({ outcome: 'refused', reason: 'aclDenied' })
  await go(page, `#/row?seq=${entries[0].seq}`)
  const verify = page.getByRole('button', { name: 'Verify in this browser' })
  await verify.click()
  await page.getByText(/^Verified in this browser: row \d+ is in the audit log/).waitFor()
  await accessible(page, 'a row that was verified')
  await picture(page, 'receipt')
  const receipt = page.getByLabel('Receipt')
  const text = await receipt.inputValue()
  const lines = text.split('\n')
  const flip = (line) => (line[0] === 'A' ? 'B' : 'A') + line.slice(1)
  for (const [at, words] of [[2, /not in the tree/], [lines.indexOf('') + 3, /forged/]]) {
    await receipt.fill(lines.with(at, flip(lines[at])).join('\n'))
    await verify.click()
    await page.locator('#verdict .bad').getByText(words).waitFor()
  }
  // The page detects a service that returns another row than the row in the audit log, even if both
  // would be encoded to the same bytes.
  let forge
  await page.route('**/api/audit?*', async (route) => {
    const response = await route.fetch()
    const body = await response.json()
    body.entries.forEach(forge)
    await route.fulfill({ response, json: body })
  })
  for (const [how, words] of [
    [(row) => { row.principalId = (BigInt(row.principalId) + (0xabcn << 64n)).toString() }, 'principalId of the row must be'],
    [(row) => { row.session = `deadbeef${row.session}` }, 'session of the row must be'],
    [(row) => { row.approval = '10000000000000000' }, 'approval of the row must be'],
    [(row) => { row.outcome = 'allowed' }, 'was changed'],
  ]) {
    forge = how
    await go(page, '#/overview')
    await go(page, `#/row?seq=${entries[0].seq}`)
    await receipt.fill(text)
    await verify.click()
    await page.locator('#verdict .bad').getByText(words).waitFor()
  }
  await accessible(page, 'a forged row')
  await picture(page, 'forged')
  await clean(window)
  await context.close()
})

test('by the keyboard alone: log in, find a session, think again, end it', async () => {
  const window = await open()
  const { page, context } = window
  const focused = () => page.evaluate(() => document.activeElement?.getAttribute('aria-label') ?? document.activeElement?.innerText ?? '')
  const tabTo = async (name) => {
    for (let i = 0; i < 200; i++) {
      await page.keyboard.press('Tab')
      if (await focused() === name) return
    }
    assert.fail(`the keyboard does not get to ${name}`)
  }
  await page.getByLabel('Name').waitFor()
  await tabTo('Skip to the content')
  await page.keyboard.press('Tab')
  await page.keyboard.press('Tab')
  await page.keyboard.type('admin')
  await page.keyboard.press('Tab')
  await page.keyboard.type(secrets.admin)
  await page.keyboard.press('Enter')
  await page.getByRole('button', { name: 'Log out' }).waitFor()
  await tabTo('Sessions')
  await page.keyboard.press('Enter')
  await shown(page, '#/sessions')
  await page.waitForFunction(() => document.activeElement?.tagName === 'H1')
  const end = `End the session ${other.id} of web`
  await tabTo(end)
  await page.keyboard.press('Enter')
  await page.getByRole('dialog').waitFor()
  await accessible(page, 'a question')
  await picture(page, 'end')
  await page.keyboard.press('Escape')
  await page.getByRole('dialog').waitFor({ state: 'detached' })
  assert.equal(await focused(), end)
  await page.keyboard.press('Enter')
  await page.keyboard.press('Tab') // Cancel has the focus
  await page.keyboard.press('Enter')
  await page.getByText('Sessions ended: 1.').waitFor()
  assert.equal((await admin.listSessions({ principalId: other.principal.id })).sessions.some((s) => s.id === other.id), false)
  await clean(window)
  await context.close()
})

test('an approval is given by somebody else, and carried out', async () => {
  const window = await open()
  const { page, context } = window
  await login(page, 'approver')
  await go(page, '#/approvals')
  await page.getByRole('link', { name: `DELETE /api/roles/${policyRole.id}` }).click()
  await page.getByText('matches the request shown, checked in this browser').waitFor()
  await page.getByRole('button', { name: 'Approve' }).click()
  await page.getByRole('dialog').getByRole('button', { name: 'Approve' }).click()
  await page.getByText('You have approved the request. Its state: approved.').waitFor()
  await admin.executeApproval({ id: asked.approvalId })
  await go(page, '#/approvals?which=all')
  await page.getByText('executed').first().waitFor()
  // Encoded values are also shown in words, next to the request.
  await admin.setApprovalPolicy({ rules: ['deleteRole', 'createRole', 'amendACL'].map((operation) => ({ operation, approvers: 1, duty: 'any' })) })
  const until = await admin.askApproval({
    method: 'POST', path: '/api/keys/acl/grant', reason: 'until February',
    body: { ttag: key.ttag, systemId: 1, principalId: BigInt(`0x${other.principal.id}`).toString(), rights: 2, startTime: 'AAAAAAAAAAA=', endTime: 'AAABo2kKnAA=' },
  })
  await go(page, `#/approval?id=${until.approvalId}`)
  await page.getByText('matches the request shown, checked in this browser').waitFor()
  const sent = await page.locator('main').innerText()
  for (const words of ['"endTime": "AAABo2kKnAA="', '"rights": 2', 'until 2027-01-31T00:00:00Z', 'WRITE (held as READ, WRITE)', 'unset, no bound', other.principal.id]) {
    assert.ok(sent.includes(words), `${words} is not in ${sent}`)
  }
  await accessible(page, 'a request in words')
  const role = await admin.askApproval({ method: 'POST', path: '/api/roles', reason: 'a role', body: { name: 'Later', operations: policyOperations } })
  await go(page, `#/approval?id=${role.approvalId}`)
  await page.getByText('(hmacData)').waitFor()
  // The user cannot decide if the service shows a request that differs from the request that would be executed.
  const next = await admin.askApproval({ method: 'DELETE', path: `/api/roles/${policyRole.id}`, reason: 'again' })
  await page.route(`**/api/approvals/${next.approvalId}`, async (route) => {
    const response = await route.fetch()
    await route.fulfill({ response, json: { ...(await response.json()), path: '/api/roles/0000000000000001' } })
  })
  await go(page, `#/approval?id=${next.approvalId}`)
  await page.getByText('do not decide on it').waitFor()
  assert.equal(await page.getByRole('button', { name: 'Approve' }).count(), 0)
  await clean(window)
  await context.close()
})

test('what a rule guards is asked for, withdrawn, and carried out once somebody else agrees', async () => {
  await admin.setApprovalPolicy({ rules: ['changeKeyState', 'endSessions'].map((operation) => ({ operation, approvers: 1, duty: 'any' })) })
  const { ttag } = await admin.mintKey({ algorithm: 'HMAC-SHA384' })
  const state = async () => (await admin.listKeys({ lineage: ttag })).keys[0].state
  const window = await open()
  const { page, context } = window
  await login(page, 'admin')
  const dialog = page.getByRole('dialog')
  const asks = async (view, button, verb, reason) => {
    await go(page, view)
    await page.getByRole('button', { name: button }).first().click()
    assert.equal(await dialog.getByLabel('Reason, for the approvers').count(), 0, 'nobody knows yet that it takes a reason')
    await dialog.getByRole('button', { name: verb }).click()
    await dialog.getByText('APPROVAL_REQUIRED').waitFor()
    await accessible(page, `to ask for ${verb}`)
    await dialog.getByRole('button', { name: 'Request approval' }).click() // nothing is sent without a reason
    await dialog.getByLabel('Reason, for the approvers').fill(reason)
    await page.keyboard.press('Enter')
    await page.waitForURL(/#\/approval\?id=/)
    await shown(page, new URL(page.url()).hash)
    await page.getByText(`(reason: ${reason})`).waitFor()
    return new URLSearchParams(page.url().split('?')[1]).get('id')
  }
  const line = '#/keys?lineage=' + encodeURIComponent(ttag)
  const first = await asks(line, /^Disable generation/, 'Disable', 'it leaked')
  assert.equal(await state(), 'enabled')
  await page.getByText('POST /api/keys/disable').waitFor()
  await page.getByRole('button', { name: 'Withdraw' }).click()
  await dialog.getByRole('button', { name: 'Withdraw' }).click()
  await page.getByText('The request is withdrawn.').waitFor()
  // The approvals that the user requested, with and without a decision.
  await go(page, '#/approvals')
  await page.getByLabel('Which').selectOption('own')
  await page.getByRole('button', { name: 'Show' }).click()
  await page.waitForURL(/which=own/)
  await shown(page, new URL(page.url()).hash)
  assert.deepEqual([...new Set(await page.locator('tbody td[data-label="Requested by"]').allInnerTexts())], ['admin'])
  await page.locator(`a[href*="${first}"]`).waitFor()

  const second = await asks(line, /^Disable generation/, 'Disable', 'it did leak')
  const approver = await as('approver')
  await approver.approve({ id: second, digest: (await approver.getApproval({ id: second })).digest })
  await page.reload()
  await page.getByRole('button', { name: 'Execute' }).click()
  await dialog.getByRole('button', { name: 'Execute' }).click()
  await page.getByText('The request was executed.').waitFor()
  assert.equal(await state(), 'disabled')

  // The session of another user, with its id in the path.
  const theirs = await (await as('web')).getCurrentSession()
  const ending = await asks(`#/sessions?principalId=${theirs.principal.id}`, `End the session ${theirs.id} of web`, 'End', 'who is that')
  assert.equal((await admin.getApproval({ id: ending })).path, `/api/sessions/${theirs.id}`)
  await admin.setApprovalPolicy({ rules: [] })
  await clean(window)
  await context.close()

  // A user who may not read the approvals of others sees only their own requests.
  const { page: at, context: few } = await open()
  await login(at, 'web')
  await go(at, '#/approvals')
  await at.getByText('Your roles show only your own requests.').waitFor()
  await at.getByText('There are no open requests.').waitFor()
  await few.close()
})

test('a key is disabled and enabled, and pages go on', async () => {
  const window = await open()
  const { page, context } = window
  await login(page, 'admin')
  await go(page, '#/keys?lineage=' + encodeURIComponent(key.ttag))
  await page.getByRole('button', { name: /^Disable generation 2/ }).click()
  await page.getByRole('dialog').getByRole('button', { name: 'Disable' }).click()
  await page.getByText('The key is disabled now.').waitFor()
  await page.getByRole('button', { name: /^Enable generation 2/ }).click()
  await page.getByRole('dialog').getByRole('button', { name: 'Enable' }).click()
  await page.getByText('The key is enabled now.').waitFor()
  await go(page, '#/audit')
  const first = await page.locator('tbody tr td').first().innerText()
  await page.getByRole('link', { name: 'Next page' }).click()
  await page.waitForURL(/cursor=/)
  await shown(page, new URL(page.url()).hash)
  assert.ok(Number(await page.locator('tbody tr td').first().innerText()) < Number(first))
  await page.goBack()
  await shown(page, '#/audit')
  await clean(window)
  await context.close()
})

test('who may not see says so, and sees what he may', async () => {
  const window = await open()
  const { page, context } = window
  await login(page, 'web')
  await page.getByText('Your roles do not allow this.').first().waitFor()
  await go(page, '#/why?operation=hmacData')
  await page.locator('#explanation').waitFor()
  await go(page, '#/audit')
  await page.getByText('ACCESS_DENIED').waitFor()
  await accessible(page, 'what is denied')
  await clean(window)
  await context.close()
})

test('the certificate of the connection logs in', async () => {
  const window = await open({
    ignoreHTTPSErrors: true, // the proxy of Playwright presents its own certificate
    clientCertificates: [{ origin: url, certPath: `${env.KEYSERVER_CLIENT}.crt`, keyPath: `${env.KEYSERVER_CLIENT}.key` }],
  })
  const { page, context } = window
  await page.getByRole('button', { name: 'Use the certificate of this connection' }).click()
  await page.getByText('/CN=auditor').waitFor()
  await go(page, '#/audit')
  await page.locator('tbody tr').first().waitFor()
  await clean(window)
  await context.close()
})

test('the policy was never violated, and would have said so', async () => {
  assert.equal(await reported(), 0)
  const { page, context } = await open()
  await page.evaluate(() => {
    document.body.append(Object.assign(document.createElement('script'), { src: 'https://elsewhere.example/x.js' }))
    try { document.body.innerHTML = '<b>x</b>' } catch {}
  }).catch(() => {})
  await page.waitForFunction(() => window.violations.length > 0)
  for (const end = Date.now() + patience; await reported() === 0;) {
    assert.ok(Date.now() < end, 'the browser has reported nothing')
    await new Promise((resolve) => setTimeout(resolve, 200))
  }
  await context.close()
})
