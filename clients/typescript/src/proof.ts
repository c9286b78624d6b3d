import { sha256, toBase64url, utf8 } from "./encoding.js";

const algorithm = { name: "ECDSA", namedCurve: "P-256" };

/**
 * A key that sessions are bound to (DPoP, RFC 9449): whoever gets hold of a session id can do
 * nothing without it.
 */
export class ProofKey {
  private described: Promise<{ header: string; thumbprint: string }> | undefined;

  private constructor(
    /** What IndexedDB can keep: the private half never leaves it as bytes. */
    readonly pair: CryptoKeyPair,
  ) {}

  /** A key that no script can read. */
  static async generate(): Promise<ProofKey> {
    return ProofKey.of(await crypto.subtle.generateKey(algorithm, false, ["sign", "verify"]));
  }

  /** A pair that was made before. */
  static of(pair: CryptoKeyPair): ProofKey {
    const { name, namedCurve } = pair.privateKey.algorithm as EcKeyAlgorithm;
    if (name !== algorithm.name || namedCurve !== algorithm.namedCurve || !pair.privateKey.usages.includes("sign")) {
      throw new TypeError("the proof key must be a pair of ECDSA on P-256 that may sign");
    }
    return new ProofKey(pair);
  }

  /** RFC 7638, as a session's boundKey has it. */
  async thumbprint(): Promise<string> {
    return (await this.describe()).thumbprint;
  }

  /** A proof for one attempt of one request. Query and fragment are no part of it. */
  async prove(method: string, url: string, sessionId: string | undefined, at: Date): Promise<string> {
    const claims: Record<string, string | number> = {
      jti: crypto.randomUUID(),
      htm: method,
      htu: url.replace(/[?#].*/s, ""),
      iat: Math.floor(at.getTime() / 1000),
    };
    if (sessionId !== undefined) {
      claims["ath"] = toBase64url(await sha256(utf8(sessionId)));
    }
    const { header } = await this.describe();
    const signed = `${header}.${toBase64url(utf8(JSON.stringify(claims)))}`;
    const signature = await crypto.subtle.sign({ name: "ECDSA", hash: "SHA-256" }, this.pair.privateKey, utf8(signed));
    return `${signed}.${toBase64url(new Uint8Array(signature))}`;
  }

  private describe() {
    this.described ??= (async () => {
      const { crv, kty, x, y } = await crypto.subtle.exportKey("jwk", this.pair.publicKey);
      const jwk = { crv, kty, x, y }; // in the order that RFC 7638 asks for
      return {
        header: toBase64url(utf8(JSON.stringify({ typ: "dpop+jwt", alg: "ES256", jwk }))),
        thumbprint: toBase64url(await sha256(utf8(JSON.stringify(jwk)))),
      };
    })();
    return this.described;
  }
}
