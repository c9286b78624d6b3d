// Tests the published package against a real server. TestClient runs it with each version of Node.js.
import assert from 'node:assert/strict'
import { createReadStream, readFileSync } from 'node:fs'
import { createServer } from 'node:https'
import { Readable } from 'node:stream'
import { test } from 'node:test'
import {
  Client, codeOf, KeyserverError, ldap, NetworkError, password, ProofKey, serviceAccount, toBase64, verifyReceipt,
} from '@keyserver-operator/client'

const { KEYSERVER_URL: baseUrl, KEYSERVER_NAME: name, KEYSERVER_PASSWORD: secret, KEYSERVER_LINK: ttag, KEYSERVER_TOKEN: token } = process.env

const code = (wanted) => (error) => {
  assert.ok(error instanceof KeyserverError, String(error))
  assert.equal(error.code, wanted, error.message)
  return true
}

// client returns a client, and the requests that it sends.
async function client(options = {}) {
  const sent = []
  const proofKey = await ProofKey.generate()
  const c = new Client({
    baseUrl, credentials: password(name, secret), proofKey,
    fetch: (url, init) => { sent.push({ url, init }); return fetch(url, init) },
    ...options,
  })
  return { c, sent, proofKey }
}

// scripted returns a client of a fake service. The service returns the given answers in order, and repeats the last
// one.
function scripted(answers, options = {}) {
  let asked = 0
  const c = new Client({
    baseUrl: 'https://keys.example', session: { sessionId: 'x', id: '0', until: Infinity, idle: Infinity, used: 0 },
    fetch: async () => {
      const answer = answers[Math.min(asked++, answers.length - 1)]
      if (answer instanceof Error) throw answer
      const { status = 200, headers = {}, ...body } = answer
      return new Response(JSON.stringify(body), { status, headers: { 'content-type': 'application/json', ...headers } })
    },
    ...options,
  })
  return { c, asked: () => asked }
}

test('a base URL that would leak credentials is refused', () => {
  for (const bad of ['http://keys.example', 'https://user:secret@keys.example', 'https://keys.example?x', 'ftp://keys.example', 'keys']) {
    assert.throws(() => new Client({ baseUrl: bad }), (error) => error instanceof TypeError && !error.message.includes('secret'), bad)
  }
  for (const good of ['https://keys.example:8443/', 'http://127.0.0.1:8080', 'http://[::1]:8080', 'http://localhost:8080']) new Client({ baseUrl: good })
})

test('a base URL that is none is refused by name', () => {
  const refused = (parameter, options) => assert.throws(() => new Client(options), (error) => error instanceof TypeError && error.message.startsWith(`${parameter}: `))
  for (const bad of [undefined, null, '', 'keys.example', 'keys.example:8443', 'http://keys.example', 'http://127.0.0.1.keys.example', 'ws://127.0.0.1', 'file:///x',
    'https://keys.example/api', 'https://keys.example/api/', 'https://keys.example//', 'https://keys.example/x/..//', 'https://keys.example?', 'https://keys.example#']) {
    refused('baseUrl', { baseUrl: bad })
    if (bad !== undefined) refused('proofUrl', { baseUrl: 'https://keys.example', proofUrl: bad })
  }
  assert.throws(() => new Client({ baseUrl: 'https://keys.example/api' }), /without \/api/)
})

test('a secret that was not given is missed at once, and never shown', async () => {
  for (const [what, make] of Object.entries({ password: (s) => password('admin', s), ldap: (s) => ldap('admin', s), serviceAccount: (s) => serviceAccount(s) })) {
    const wanted = what === 'serviceAccount' ? 'token' : 'password'
    for (const none of [undefined, null, '']) {
      assert.throws(() => make(none), { name: 'TypeError', message: `${wanted}: must not be empty; pass a string, or a function that returns one` }, what)
      const { c, sent } = await client({ credentials: make(() => none) })
      await assert.rejects(c.getCurrentSession(), { name: 'TypeError', message: `${wanted}: must not be empty; pass a string, or a function that returns one` }, what)
      assert.equal(sent.length, 0)
    }
    const bytes = Buffer.from('hidden')
    for (const wrong of [bytes, { secret: 'hidden' }, Promise.resolve('hidden'), 42]) {
      assert.throws(() => make(wrong), (error) => error instanceof TypeError && error.message.startsWith(`${wanted}: must be `) && !error.message.includes('hidden'), what)
    }
    const { c, sent } = await client({ credentials: make(async () => bytes) })
    await assert.rejects(c.getCurrentSession(), (error) => error instanceof TypeError && error.message.startsWith(`${wanted}: must be `))
    assert.equal(sent.length, 0)
  }
  const { c } = await client({ credentials: password(name, async () => secret) })
  assert.equal((await c.getCurrentSession()).principal.name, name)
})

test('a certificate that is not trusted is told, and nothing was sent', async () => {
  const unknown = /NODE_EXTRA_CA_CERTS/
  for (const [what, reason, hint] of [
    ['self-signed', /self-signed/, unknown],
    ['unknown-chain', /self-signed/, unknown],
    ['unknown-leaf', /verify|issuer/, unknown],
    ['expired', /expired/],
    ['not-yet', /not yet/],
    ['other-name', /altnames/],
  ]) {
    const { cert, key } = JSON.parse(readFileSync(`${process.env.KEYSERVER_CERTIFICATES}/${what}.json`))
    let requests = 0
    const service = createServer({ cert, key }, (_, answer) => { requests++; answer.end() })
    await new Promise((listens) => service.listen(0, '127.0.0.1', listens))
    try {
      const c = new Client({ baseUrl: `https://127.0.0.1:${service.address().port}`, credentials: password('admin', 'secret'), maxRetries: 0 })
      await assert.rejects(c.mintKey({ algorithm: 'AES-256' }), (error) => {
        assert.ok(error instanceof NetworkError, String(error))
        assert.equal(error.sent, false, `${what}: ${error.message}`)
        assert.match(error.message, reason)
        assert.equal(unknown.test(error.message), hint === unknown, `${what}: ${error.message}`)
        return true
      })
      assert.equal(requests, 0)
    } finally {
      service.close()
    }
  }
})

test('a wrong password has its code', async () => {
  const { c } = await client({ credentials: password(name, 'wrong') })
  await assert.rejects(c.getCurrentSession(), (error) => code('INVALID_CREDENTIALS')(error) && error.status === 401 && error.requestId !== '')
})

test('without credentials nothing is sent', async () => {
  const { c, sent } = await client({ credentials: undefined })
  await assert.rejects(c.getCurrentSession(), code('SESSION_NOT_FOUND'))
  assert.equal(sent.length, 0)
})

test('a stolen session id is worth nothing', async () => {
  const { c, sent, proofKey } = await client()
  const mine = await c.getCurrentSession()
  assert.equal(mine.boundKey, await proofKey.thumbprint())
  const { headers } = sent.at(-1).init
  const stolen = headers.Authorization.split(' ')[1]
  const url = `${baseUrl}/api/sessions/current`
  for (const scheme of ['Bearer', 'DPoP']) {
    const answer = await fetch(url, { headers: { authorization: `${scheme} ${stolen}` } })
    assert.deepEqual([answer.status, (await answer.json()).code], [401, 'PROOF_REQUIRED'])
  }
  const thief = new Client({ baseUrl, proofKey: await ProofKey.generate(), session: { sessionId: stolen, id: mine.id, until: Infinity, idle: Infinity, used: 0 } })
  await assert.rejects(thief.getCurrentSession(), code('PROOF_KEY_MISMATCH'))
  const replayed = await fetch(url, { headers })
  assert.deepEqual([replayed.status, (await replayed.json()).code], [401, 'PROOF_REPLAYED'])
  await assert.rejects(crypto.subtle.exportKey('pkcs8', proofKey.pair.privateKey), /not extractable/)
  assert.equal((await c.getCurrentSession()).id, mine.id)
})

test('refusals have their codes', async () => {
  const { c, sent } = await client()
  await assert.rejects(c.authorizeKey({ ttag: toBase64(new Uint8Array(12)), filename: 'x' }), code('KEY_NOT_FOUND'))
  await assert.rejects(c.mintKey({ algorithm: 'ROT13' }), code('BAD_REQUEST'))
  await assert.rejects(c.getPrincipal({ id: '00000000000000ff' }), code('NOT_FOUND'))
  await assert.rejects(c.getPrincipal({ id: 'x' }), code('BAD_REQUEST'))
  const before = sent.length
  for (const id of ['', '.', '..']) await assert.rejects(c.getPrincipal({ id }), code('BAD_REQUEST'))
  await assert.rejects(c.listRoles.call(c, undefined, { signal: AbortSignal.abort() }).then(() => c.getPrincipal({ id: '1', nothing: 1 })), code('BAD_REQUEST'))
  assert.ok(sent.length <= before + 1)
  assert.equal(codeOf(new Error('x')), '')
})

test('what a rule guards is asked for by the call itself, and not done', async () => {
  const { c, sent } = await client()
  const { roles } = await c.listRoles()
  const auditor = roles.find((r) => r.name === 'Auditor')
  const { principal } = await c.createPasswordPrincipal({ name: 'somebody else', password: 'a long passphrase', roleIds: [auditor.id] })
  await c.setApprovalPolicy({ rules: ['createRole', 'deleteRole'].map((operation) => ({ operation, approvers: 1, duty: 'any' })) })
  const role = { name: 'Asked for', operations: [] }
  await assert.rejects(c.createRole(role), code('APPROVAL_REQUIRED'))
  const before = sent.length
  const make = await c.askFor('a team more', (client) => client.createRole(role))
  assert.deepEqual(sent.slice(before).map(({ url, init }) => `${init.method} ${new URL(url).pathname}`), ['POST /api/approvals'])
  assert.deepEqual([make.method, make.path, make.body, make.reason, make.state], ['POST', '/api/roles', role, 'a team more', 'pending'])
  const drop = await c.askFor('a team less', async (client) => (await client.deleteRole({ id: auditor.id })).name)
  assert.deepEqual([drop.method, drop.path, drop.body ?? null], ['DELETE', `/api/roles/${auditor.id}`, null])
  assert.equal((await c.listRoles()).roles.length, roles.length)
  await assert.rejects(c.askFor('nothing', async () => 1), TypeError)
  await assert.rejects(c.askFor('no rule guards it', (client) => client.listRoles()), code('INVALID_ARGUMENT'))
  await assert.rejects(c.askFor('no role', (client) => client.deleteRole({ id: '' })), code('BAD_REQUEST'))
  for (const { approvalId } of [make, drop]) await c.withdrawApproval({ id: approvalId })
  await c.setApprovalPolicy({ rules: [] })
  await c.deletePrincipal({ id: principal.id })
})

test('a success without its evidence is none', async () => {
  for (const answer of [{ saved: false, detail: '' }, { detail: '' }]) {
    await assert.rejects(scripted([answer]).c.updateRole({ id: '1', roleName: 'x' }), code('NOT_VERIFIED'))
  }
  await assert.rejects(scripted([{ status: 409, code: 'NOT_SAVED', detail: 'x', saved: false }]).c.updateRole({ id: '1', roleName: 'x' }),
    (error) => code('NOT_SAVED')(error) && error.answer.saved === false)
  const { c } = scripted([{ status: 502 }])
  await assert.rejects(c.listRoles(), (error) => error.code === '' && error.status === 502)
  const page = new Client({ baseUrl, session: { sessionId: 'x', id: '0', until: Infinity, idle: Infinity, used: 0 }, fetch: async () => new Response('<html>', { headers: { 'content-type': 'text/html' } }) })
  await assert.rejects(page.listRoles(), (error) => error.code === '' && /contract/.test(error.detail))
})

test('an answer that is no object is none', async () => {
  for (const body of ['null', '[]', '0', 'true', '"text"', '', '<html>']) {
    const c = new Client({
      baseUrl: 'https://keys.example', session: { sessionId: 'x', id: '0', until: Infinity, idle: Infinity, used: 0 },
      fetch: async () => new Response(body, { headers: { 'content-type': 'application/json' } }),
    })
    await assert.rejects(c.listAuditEntries(), (error) => error instanceof KeyserverError && error.detail.startsWith('the response to GET /api/audit does not match '), body)
  }
})

test('only what may be repeated is', async () => {
  const gone = new TypeError('fetch failed', { cause: Object.assign(new Error('reset'), { code: 'ECONNRESET' }) })
  const refused = new TypeError('fetch failed', { cause: Object.assign(new Error('refused'), { code: 'ECONNREFUSED' }) })
  const busy = { status: 503, code: 'OVERLOADED', detail: '', retryable: true }
  const peer = { status: 503, code: 'PEER_UNAVAILABLE', detail: '', retryable: true }
  const read = (c) => c.listRoles()
  const write = (c) => c.mintKey({ algorithm: 'AES-256' })
  const use = (c) => c.encrypt({ ttag: 'AA==', data: 'AA==' })
  for (const [what, first, call, times] of [
    ['a read that got no answer', gone, read, 2],
    ['a write that got no answer', gone, write, 1],
    ['a write that was not sent', refused, write, 2],
    ['a write that the service did not take on', busy, write, 2],
    ['one that has to wait for longer than anybody does', { ...busy, headers: { 'retry-after': '60' } }, write, 1],
    ['what a peer may have counted', peer, use, 1],
    ['what a peer did not answer and nobody counts', peer, read, 2],
    ['a service that is not ready, asked whether it is', { status: 503, code: 'NOT_READY', detail: '', retryable: true, parts: [] }, (c) => c.getReadiness(), 1],
    ['a refusal', { status: 403, code: 'ACCESS_DENIED', detail: '' }, read, 1],
  ]) {
    const { c, asked } = scripted([first, { roles: [] }])
    const error = await call(c).then(() => undefined, (e) => e)
    assert.equal(asked(), times, `${what}: ${error}`)
    assert.equal(error === undefined, times === 2, what)
  }
  const { c, asked } = scripted([busy], { maxRetries: 2 })
  await assert.rejects(c.listRoles(), code('OVERLOADED'))
  assert.equal(asked(), 3)
  await assert.rejects(scripted([gone]).c.mintKey({ algorithm: 'AES-256' }), (error) => error instanceof NetworkError && error.sent && /reset/.test(error.message))
  await assert.rejects(scripted([busy]).c.listRoles({ signal: AbortSignal.timeout(20) }), { name: 'TimeoutError' })
})

test('a session that has ended is opened anew, once for all calls', async () => {
  const { c, sent } = await client()
  const { id } = await c.getCurrentSession()
  const { c: other } = await client()
  await other.endSession({ id })
  sent.length = 0
  const again = await Promise.all([1, 2, 3].map(() => c.getCurrentSession()))
  assert.equal(new Set(again.map((s) => s.id)).size, 1)
  assert.notEqual(again[0].id, id)
  assert.equal(sent.filter(({ init }) => init.method === 'POST').length, 1)
  await c.logout()
  await c.logout()
})

test('a session goes on in another client with its key', async () => {
  let session
  const { c, proofKey } = await client({ onSession: (s) => { session = s } })
  const { id } = await c.login({ method: 'password', name, password: secret })
  const next = new Client({ baseUrl, proofKey: ProofKey.of(structuredClone(proofKey.pair)), session })
  assert.equal((await next.getCurrentSession()).id, id)
  await next.logout()
  await assert.rejects(new Client({ baseUrl, proofKey, session }).getCurrentSession(), (error) => error.reauth)
})

test('a clock that is wrong is corrected', async () => {
  const { c } = await client({ now: () => Date.now() - 3_600_000 })
  assert.equal((await c.getCurrentSession()).principal.name, name)
})

test('a token of a service account logs in', async () => {
  const { c } = await client({ credentials: serviceAccount(() => `${token}\n`) })
  assert.equal((await c.getCurrentSession()).kind, 'kubernetes')
  const { c: wrong } = await client({ credentials: serviceAccount('a.b.c') })
  await assert.rejects(wrong.getCurrentSession(), code('INVALID_CREDENTIALS'))
})

test('a scoped credential is good for its key', async () => {
  const { c } = await client()
  const proofKey = await ProofKey.generate()
  const { sessionId, id } = await c.derive({ method: 'scoped', objects: [ttag], operations: ['macData'], lifetimeSeconds: 60, dpopJkt: await proofKey.thumbprint() })
  const scoped = new Client({ baseUrl, proofKey, session: { sessionId, id, until: Infinity, idle: Infinity, used: 0 } })
  assert.equal((await scoped.computeMac({ lineage: ttag, data: Buffer.from('x') })).ttag, ttag)
  await assert.rejects(scoped.listRoles(), (error) => error.status === 403)
})

test('messages stream', async () => {
  const { c } = await client()
  const message = crypto.getRandomValues(new Uint8Array(65_536)).subarray(0, 65_521)
  const pieces = 3
  const whole = new Uint8Array(message.length * pieces)
  for (let i = 0; i < pieces; i++) whole.set(message, i * message.length)
  const stream = () => {
    let left = pieces
    return new ReadableStream({ pull: (to) => (left-- > 0 ? to.enqueue(message) : to.close()) })
  }
  const { mac } = await c.computeMac({ lineage: ttag, data: stream() })
  assert.equal((await c.computeMac({ lineage: ttag, data: whole })).mac, mac)
  assert.equal((await c.computeMac({ lineage: ttag, data: new Blob([whole]) })).mac, mac)
  assert.equal((await c.computeHmac({ hiddenLink: ttag, data: stream() })).mac, mac)
  assert.equal((await c.verifyMac({ lineage: ttag, mac, data: stream() })).valid, true)
  whole[0] ^= 1
  assert.equal((await c.verifyMac({ lineage: ttag, mac, data: whole })).valid, false)
  for (const data of [new Uint8Array(0), Buffer.from('a'), Buffer.from('ab')]) {
    assert.equal((await c.computeMac({ lineage: ttag, data })).mac, (await c.computeMac({ lineage: ttag, data: new Blob([data]) })).mac)
  }
})

// The calls with a message. verifyMac gets the MAC of another message.
const ofMessages = {
  computeMac: (c, data) => c.computeMac({ lineage: ttag, data }),
  verifyMac: (c, data) => c.verifyMac({ lineage: ttag, mac: toBase64(new Uint8Array(48)), data }),
  computeHmac: (c, data) => c.computeHmac({ hiddenLink: ttag, data }),
}

// uses returns how often a key was used for a complete message, according to the audit log. The row of a long message
// is written before its end. A second row says if the message was incomplete.
async function uses(c) {
  const { entries } = await c.listAuditEntries({ order: 'desc', limit: 1000 })
  const outcomes = entries.filter(({ operation }) => /mac/i.test(operation)).map(({ outcome, reason }) => `${outcome} ${reason}`.trim())
  return outcomes.filter((o) => o === 'allowed').length - outcomes.filter((o) => o === 'failed badMessage').length
}

test('what is no message is refused before anything is sent', async () => {
  class Order { amount = 1 }
  const locked = new Blob(['a']).stream()
  locked.getReader()
  const begun = new Blob(['a']).stream()
  const reader = begun.getReader()
  await reader.read()
  reader.releaseLock()
  const moved = new Uint8Array([1])
  structuredClone(moved, { transfer: [moved.buffer] })
  const file = () => createReadStream(new URL(import.meta.url)).on('error', () => {})
  for (const [what, data, hint] of [
    ['an object', { amount: 1 }, /an object \(Object\).*encode it to bytes/],
    ['an object of a class', new Order(), /an object/],
    ['an object that looks like bytes', { length: 1, 0: 1, byteLength: 1 }, /an object/],
    ['an object that says that it is bytes', { [Symbol.toStringTag]: 'ArrayBuffer', byteLength: 1 }, /an object/],
    ['an object with the prototype of bytes', Object.create(Uint8Array.prototype), /an object/],
    ['text', 'a message', /a string.*new TextEncoder\(\)\.encode\(text\)/],
    ['empty text', '', /TextEncoder/],
    ['nothing', undefined, /is undefined/],
    ['null', null, /is null/],
    ['a number', 42, /is a number/],
    ['a large number', 42n, /is a bigint/],
    ['a boolean', true, /is a boolean/],
    ['numbers', [1, 2, 3], /is an array/],
    ['pieces', [new Uint8Array(1)], /is an array/],
    ['a function', () => new Uint8Array(1), /is a function/],
    ['a promise', Promise.resolve(new Uint8Array(1)), /\(Promise\)/],
    ['a form', new URLSearchParams('a=b'), /an object/],
    ['an answer', new Response('a'), /an object/],
    ['a file of Node.js', file(), /Readable\.toWeb\(/],
    ['a stream of Node.js', Readable.from([Buffer.from('a')]), /Readable\.toWeb\(/],
    ['what makes pieces', (async function* () { yield new Uint8Array(1) })(), /an object/],
    ['a stream that somebody else reads', locked, /read/],
    ['a stream of which something was read', begun, /read/],
    ['bytes that were moved elsewhere', moved, /transferred/],
  ]) {
    for (const [name, call] of Object.entries(ofMessages)) {
      const { c, sent } = await client()
      await assert.rejects(call(c, data), (error) => {
        assert.ok(error instanceof TypeError, `${name} of ${what}: ${error}`)
        assert.match(error.message, /^data\b/, what)
        assert.match(error.message, hint, what)
        assert.doesNotMatch(error.message, /a message|amount/, what)
        return true
      }, `${name} of ${what}`)
      assert.equal(sent.length, 0, `${name} of ${what} was sent`)
    }
  }
})

test('a stream of anything but bytes breaks off, and is no success', async () => {
  const { c } = await client()
  const before = await uses(c)
  const large = new Uint8Array(1 << 20)
  for (const [what, pieces, hint] of [
    ['text', ['abc'], /a string.*TextEncoderStream/],
    ['empty text', [''], /a string/],
    ['text behind bytes', [large, large, 'abc'], /a string/],
    ['objects', [{ length: 3 }], /an object/],
    ['numbers', [1], /a number/],
    ['arrays', [[1, 2, 3]], /an array/],
    ['null', [null], /null/],
    ['nothing', [undefined], /undefined/],
  ]) {
    for (const [name, call] of Object.entries(ofMessages)) {
      let cancelled
      const left = [...pieces]
      const data = new ReadableStream({
        pull: (to) => (left.length > 0 ? to.enqueue(left.shift()) : undefined),
        cancel: (reason) => { cancelled = reason },
      })
      await assert.rejects(call(c, data), (error) => {
        assert.ok(error instanceof TypeError, `${name} of ${what}: ${error}`)
        assert.match(error.message, /^data: a piece of the stream is /, what)
        assert.match(error.message, hint, what)
        return true
      }, `${name} of a stream of ${what}`)
      assert.ok(cancelled instanceof TypeError, `${name} of a stream of ${what} goes on`)
    }
  }
  assert.equal(await uses(c), before, 'a key was used')
  await c.computeMac({ lineage: ttag, data: new Uint8Array(1) })
  assert.equal(await uses(c), before + 1)
})

test('a service that answers too early does not make a success of a broken stream', async () => {
  const session = { sessionId: 'x', id: '0', until: Infinity, idle: Infinity, used: 0 }
  const early = async (_, { body }) => {
    await new Response(body).arrayBuffer().catch(() => {})
    return new Response('{"valid":true}', { headers: { 'content-type': 'application/json' } })
  }
  const c = new Client({ baseUrl, session, fetch: early })
  await assert.rejects(ofMessages.verifyMac(c, ReadableStream.from(['abc'])), TypeError)
  await assert.rejects(ofMessages.verifyMac(c, new ReadableStream({ start: (to) => to.error(new RangeError('gone')) })), /gone/)
})

test('a failure of the stream itself is what its reader hears', async () => {
  const { c } = await client()
  const failing = new ReadableStream({ pull: () => { throw new RangeError('the disk is gone') } })
  await assert.rejects(ofMessages.computeMac(c, failing), { name: 'RangeError', message: 'the disk is gone' })
  await assert.rejects(ofMessages.computeMac(c, Readable.toWeb(createReadStream('/nothing/is/here'))), { code: 'ENOENT' })
})

test('bytes are a message in each of their forms', async () => {
  const { c } = await client()
  const bytes = new Uint8Array(new Uint16Array([0x0102, 0xfffe, 0x0304]).buffer)
  const { mac } = await c.computeMac({ lineage: ttag, data: bytes })
  const around = new Uint8Array([9, ...bytes, 9])
  const shared = new Uint8Array(new SharedArrayBuffer(bytes.length))
  shared.set(bytes)
  for (const [what, data] of [
    ['a buffer', bytes.buffer],
    ['a view of another kind', new Uint16Array(bytes.buffer)],
    ['a view of a part', new DataView(around.buffer, 1, bytes.length)],
    ['bytes of a part', around.subarray(1, -1)],
    ['shared bytes', shared],
    ['a stream of buffers', ReadableStream.from([bytes.buffer])],
    ['a stream of views of another kind', ReadableStream.from([new Uint16Array(bytes.buffer)])],
    ['a stream of Node.js as one of the web', Readable.toWeb(Readable.from([Buffer.from(bytes)]))],
  ]) {
    assert.equal((await c.verifyMac({ lineage: ttag, mac, data })).valid, true, what)
  }
  const large = new Uint8Array(new SharedArrayBuffer(3 << 20))
  const answers = await Promise.all([large, new Blob([large.slice()])].map((data) => c.computeMac({ lineage: ttag, data })))
  assert.equal(answers[0].mac, answers[1].mac)
})

test('a message is what it was when the call was made', async () => {
  const { c } = await client()
  for (const size of [5, 3 << 20]) {
    const { mac } = await c.computeMac({ lineage: ttag, data: new Uint8Array(size) })
    const data = new Uint8Array(size)
    const checked = c.verifyMac({ lineage: ttag, mac, data })
    data.fill(1)
    assert.equal((await checked).valid, true, size)
  }
})

test('what is sent as base64 is, and nothing else is taken for it', async () => {
  const { c } = await client()
  const key = await c.mintKey({ algorithm: 'AES-256' })
  const { ciphertext } = await c.encrypt({ ttag: key.ttag, data: toBase64(new Uint8Array([1])) })
  assert.equal((await c.decrypt({ ttag: key.ttag, ciphertext })).data, 'AQ==')
  for (const value of [{ amount: 1 }, new Uint8Array([1]), Buffer.from('a'), new Blob(['a']), 'a message', undefined, null, 42, true, [1, 2], new Date()]) {
    await assert.rejects(c.encrypt({ ttag: key.ttag, data: value }), code('BAD_REQUEST'), String(value))
    await assert.rejects(c.decrypt({ ttag: key.ttag, ciphertext: value }), code('BAD_REQUEST'), String(value))
    await assert.rejects(c.computeMacs({ items: [{ lineage: ttag, data: value }] }), code('BAD_REQUEST'), String(value))
  }
})

test('a backup comes as it is made', async () => {
  const { c } = await client()
  const { recipient } = { recipient: process.env.KEYSERVER_RECIPIENT }
  const reader = (await c.createBackup({ recipient })).getReader()
  let head = new Uint8Array(0)
  for (let piece = await reader.read(); !piece.done; piece = await reader.read()) if (head.length === 0) head = piece.value
  assert.ok(Buffer.from(head).toString('latin1').startsWith('age-encryption.org/v1'))
})

test('an attempt has its time, and a long poll that of its wait besides', async () => {
  const slow = (_, { signal }) => new Promise((resolve, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason))
    setTimeout(() => resolve(new Response('{"changes":[],"cursor":1,"reset":false}', { headers: { 'content-type': 'application/json' } })), 300)
  })
  const session = { sessionId: 'x', id: '0', until: Infinity, idle: Infinity, used: 0 }
  const c = new Client({ baseUrl, session, fetch: slow, timeout: 20, maxRetries: 0 })
  await assert.rejects(c.listChanges(), (error) => error instanceof NetworkError && error.sent)
  assert.equal((await c.listChanges({ wait: 60 })).cursor, 1)
})

test('a receipt shows that a row is in the trail, and a forged one does not', async () => {
  const { c } = await client()
  await c.listRoles({ purpose: 'a test' })
  const { key, origin } = await c.getAuditKey()
  const rows = (await c.listAuditEntries({ order: 'desc', limit: 1000 })).entries
  for (const row of rows) {
    const verified = await verifyReceipt(row, await c.getAuditReceipt({ seq: row.seq }), key)
    assert.equal(verified.origin, origin)
    assert.ok(verified.size >= row.seq)
  }
  const row = rows.find((r) => r.for === 'a test')
  const receipt = await c.getAuditReceipt({ seq: row.seq })
  const flip = (text) => (/^a/i.test(text) ? 'b' : 'a') + text.slice(1)
  for (const [field, value] of Object.entries(row)) {
    const other = { string: (v) => flip(v), number: (v) => v + 1, object: () => '00000000000000ff' }[typeof value](value)
    const forged = { ...row, [field]: field === 'time' ? '1970-01-01T00:00:00Z' : /^\d+$/.test(value) && typeof value === 'string' ? `${value}1` : other }
    await assert.rejects(verifyReceipt(forged, receipt, key), Error, field)
  }
  const neighbour = rows.find((r) => r.seq === row.seq - 1)
  await assert.rejects(verifyReceipt(neighbour, receipt, key), /is for row/)
  const lines = receipt.split('\n')
  const hash = lines.findIndex((line) => /^[A-Za-z0-9+/]{43}=$/.test(line))
  const changed = (i, line) => lines.with(i, line).join('\n')
  await assert.rejects(verifyReceipt(row, changed(hash, flip(lines[hash])), key), /not in the tree/)
  await assert.rejects(verifyReceipt(row, lines.toSpliced(hash, 1).join('\n'), key), /not in the tree/)
  await assert.rejects(verifyReceipt(row, lines.toSpliced(hash, 0, lines[hash]).join('\n'), key), /not in the tree/)
  await assert.rejects(verifyReceipt(row, changed(0, 'c2sp.org/tlog-proof@v2'), key), /not a C2SP tlog-proof/)
  const blank = lines.indexOf('')
  await assert.rejects(verifyReceipt(row, changed(blank + 2, `${Number(lines[blank + 2]) + 1}`), key), /forged/)
  await assert.rejects(verifyReceipt(row, changed(blank + 3, flip(lines[blank + 3])), key), /forged/)
  const signature = lines.findLastIndex((line) => line.startsWith('— '))
  const bytes = Buffer.from(lines[signature].split(' ')[2], 'base64')
  bytes[bytes.length - 1] ^= 1
  await assert.rejects(verifyReceipt(row, changed(signature, `— ${origin} ${bytes.toString('base64')}`), key), /forged/)
  await assert.rejects(verifyReceipt(row, lines.toSpliced(signature, 1).join('\n'), key), /not signed/)
  await assert.rejects(verifyReceipt(row, receipt, key.replace(/\+([0-9a-f]{8})\+/, '+00000000+')), /mistyped/)
  await assert.rejects(verifyReceipt(row, receipt, 'x'), /not an Ed25519 key/)
})

test('a row is verified in the spelling of the service alone, though others have the same bytes', async () => {
  const { c } = await client()
  await c.listRoles({ purpose: 'a test of spellings' })
  await assert.rejects(c.login({ method: 'password', name: 'nobody \ufffd', password: 'x' }), code('INVALID_CREDENTIALS'))
  const { key } = await c.getAuditKey()
  const found = async (query, is) => (await c.listAuditEntries({ limit: 1000, ...query })).entries.find(is)
  const refused = async (row, changes, words) => {
    const receipt = await c.getAuditReceipt({ seq: row.seq })
    await verifyReceipt(row, receipt, key)
    for (const change of changes) await assert.rejects(verifyReceipt({ ...row, ...change }, receipt, key), (error) => words.test(error.message) || assert.fail(`${JSON.stringify(change)}: ${error.message}`), JSON.stringify(change))
  }
  const row = await found({ order: 'desc' }, (r) => r.for === 'a test of spellings')
  const plain = await found({}, (r) => r.address === '' && r.session === null && r.for === '' && r.count === 1 && r.approval === null)
  const more = (id, times = 1n) => (BigInt(id) + (times << 64n)).toString()
  const { principalId: id, session, time } = row
  await refused(row, [more(id), more(id, 0xabcn), `0x${BigInt(id).toString(16)}`, `0${id}`, ` ${id}`, `+${id}`, `${id} `, `${id}\n`, '', '-1', more('0'), Number(id), null, undefined, [id]]
    .map((principalId) => ({ principalId })), /^principalId of the row must be a decimal number from 0 to 18446744073709551615 /)
  await refused(row, [more(0n), '01', 7].map((actorPrincipalId) => ({ actorPrincipalId, actorSystemId: 1 })), /^actorPrincipalId of the row must be a decimal /)
  await refused(row, [2 ** 32, '1', -1, null].map((actorSystemId) => ({ actorPrincipalId: '7', actorSystemId })), /^actorSystemId of the row must be an integer /)
  await refused(row, [{ actorPrincipalId: '0' }, { actorSystemId: 0 }, { actorPrincipalId: '0', actorSystemId: 0 }], /^actorPrincipalId and actorSystemId of the row must identify a principal/)
  await refused(row, [`deadbeef${session}`, `0${session}`, 'ABCDEF0123456789', session.slice(1), `${session}\n`, '0'.repeat(16), undefined, '', 7]
    .map((session) => ({ session })), /^session of the row must be 16 lower-case hexadecimal digits /)
  for (const approval of ['10000000000000000', '0', '0'.repeat(16), undefined, '', 0]) await refused(row, [{ approval }], /^approval of the row must be 16 lower-case /)
  await refused(plain, [{ session: '0'.repeat(16) }], /^session of the row/)
  for (const [name, least] of [['seq', 1], ['chain', 1], ['position', 1], ['count', 1]]) {
    await refused(plain, [`${row[name]}`, least - 1, -5, row[name] + 0.5, 2 ** 53, 1e300, null, true, undefined].map((value) => ({ [name]: value })), new RegExp(`^${name} of the row must be an integer from ${least} to 9007199254740991$`))
  }
  await refused(row, [2 ** 32, row.systemId + 2 ** 64, `${row.systemId}`, -1, 1.5, true, null].map((systemId) => ({ systemId })), /^systemId of the row must be an integer from 0 to 4294967295$/)
  const seconds = time.slice(0, 19)
  await refused(row, [`${seconds}.0Z`, `${seconds}.10Z`, `${seconds}.1234567Z`, time.replace('Z', '+00:00'), time.replace('T', ' '), time.toLowerCase(), `${time} `, `+00${time}`,
    '2026-02-31T00:00:00Z', '2026-02-10T24:00:00Z', '2026-13-01T00:00:00Z', '', null, 7].map((time) => ({ time })), /^time of the row must be a time of RFC 3339 in UTC /)
  for (const name of ['operation', 'outcome', 'reason', 'object', 'sessionKind', 'requestId', 'address', 'for']) {
    await refused(row, [null, undefined, 0, [row[name]], `${row[name]}\ud800`].map((value) => ({ [name]: value })), new RegExp(`^${name} of the row must be a string of valid Unicode$`))
  }
  const named = await found({ operation: 'login' }, (r) => r.object === 'nobody \ufffd')
  await refused(named, [{ object: 'nobody \udc00' }], /^object of the row/)
  await refused(row, [{ filename: null }, { filename: [] }], /^filename of the row must be a string of valid Unicode, or absent$/)
  for (const name of ['hash', 'previousHash']) {
    await refused(row, [`${row[name]}\n`, row[name].slice(0, -1), null, undefined, 'AA=='].map((value) => ({ [name]: value })), new RegExp(`^${name} of the row must be a hash of 32 bytes in base64$`))
  }
  await refused(row, [{ note: 'innocent' }, { Session: row.session }], /^the row has the member "(note|Session)", which receipts do not cover$/)
})
