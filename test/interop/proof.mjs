// Tests a server with three DPoP clients: dpop, oauth4webapi and jose. Each client binds a session at login, requests
// an HMAC with a proof, and sends the same proof again. Prints one line of JSON per client and algorithm.
import { createHash, randomUUID, webcrypto } from 'node:crypto'
import * as dpop from 'dpop'
import * as jose from 'jose'
import * as oauth from 'oauth4webapi'

globalThis.crypto ??= webcrypto // for Node.js 18

const { KEYSERVER_URL: base, KEYSERVER_NAME: name, KEYSERVER_PASSWORD: password, KEYSERVER_LINK: hiddenLink } = process.env
const login = `${base}/api/sessions`
const mac = `${base}/api/crypto/hmac`
const message = JSON.stringify({ hiddenLink, data: 'aGVsbG8=' })

async function call(method, url, body, headers) {
  const response = await fetch(url, { method, body, headers: { 'content-type': 'application/json', ...headers } })
  const answer = await response.json()
  return { status: response.status, code: answer.code ?? '', challenge: response.headers.get('www-authenticate'), answer }
}

// A prover creates proofs with one key: (url, method, session id) => proof.
const provers = {
  async dpop(algorithm) {
    const pair = await dpop.generateKeyPair(algorithm, { extractable: true })
    return {
      prove: (url, method, token) => dpop.generateProof(pair, url, method, undefined, token),
      thumbprint: await dpop.calculateThumbprint(pair.publicKey),
    }
  },
  async jose(algorithm) {
    const { publicKey, privateKey } = await jose.generateKeyPair(algorithm, { extractable: true })
    const jwk = await jose.exportJWK(publicKey)
    return {
      prove: (url, method, token) => {
        const claims = { htu: url, htm: method, jti: randomUUID() }
        if (token) claims.ath = createHash('sha256').update(token).digest('base64url')
        return new jose.SignJWT(claims).setProtectedHeader({ typ: 'dpop+jwt', alg: algorithm, jwk }).setIssuedAt().sign(privateKey)
      },
      thumbprint: await jose.calculateJwkThumbprint(jwk),
    }
  },
  // oauth4webapi creates and sends its proofs itself. A custom fetch reads the proof from its request.
  async oauth4webapi(algorithm) {
    const pair = await oauth.generateKeyPair(algorithm, { extractable: true })
    const handle = oauth.DPoP({ client_id: 'interop' }, pair)
    return {
      thumbprint: await handle.calculateThumbprint(),
      async prove(url, method, token) {
        let proof
        const options = {
          DPoP: handle,
          async [oauth.customFetch](_, init) {
            proof = new Headers(init.headers).get('dpop')
            return new Response('{}')
          },
        }
        await oauth.protectedResourceRequest(token ?? 'none', method, new URL(url), undefined, undefined, options)
        return proof
      },
      // Sends a complete request, as users of this library do.
      async request(token) {
        const response = await oauth.protectedResourceRequest(token, 'POST', new URL(mac),
          new Headers({ 'content-type': 'application/json' }), message, { DPoP: handle })
        return response.status
      },
    }
  },
}

async function drive(client, algorithm) {
  const prover = await provers[client](algorithm)
  const credentials = JSON.stringify({ method: 'password', name, password })
  const session = await call('POST', login, credentials, { dpop: await prover.prove(login, 'POST') })
  const token = session.answer.sessionId
  const proof = await prover.prove(mac, 'POST', token)
  const headers = { authorization: `DPoP ${token}`, dpop: proof }
  return {
    client, algorithm,
    login: session.status,
    bound: session.answer.boundKey === prover.thumbprint,
    without: (await call('POST', mac, message, { authorization: `Bearer ${token}` })).code,
    hmac: (await call('POST', mac, message, headers)).status,
    replayed: (await call('POST', mac, message, headers)).code,
    whole: prover.request ? await prover.request(token) : 200,
  }
}

for (const client of Object.keys(provers)) {
  for (const algorithm of ['ES256', 'Ed25519', 'RS256', 'PS256']) {
    console.log(JSON.stringify(await drive(client, algorithm)))
  }
}
console.log(JSON.stringify(await drive('jose', 'ES384')))
console.log(JSON.stringify(await drive('jose', 'EdDSA')))
