import { sha256, toBase64url, utf8 } from "./encoding.js";

const algorithm = { name: "ECDSA", namedCurve: "P-256" };

/**
 * Key that sessions are bound to (DPoP, RFC 9449). A stolen session id is useless without this
 * key.
 */
export class ProofKey {
  private described: Promise<{ header: string; thumbprint: string }> | undefined;

  private constructor(
    /** Key pair. IndexedDB can store it without exposing the bytes of the private key. */
    readonly pair: CryptoKeyPair,
  ) {}

  /** Generates a key pair. No script can read the private key. */
  static async generate(): Promise<ProofKey> {
    return ProofKey.of(await crypto.subtle.generateKey(algorithm, false, ["sign", "verify"]));
  }

  /** Returns the proof key for an existing pair. Throws a TypeError if it is not ECDSA on P-256 or may not sign. */
  static of(pair: CryptoKeyPair): ProofKey {
    const { name, namedCurve } = pair.privateKey.algorithm as EcKeyAlgorithm;
    if (name !== algorithm.name || namedCurve !== algorithm.namedCurve || !pair.privateKey.usages.includes("sign")) {
      throw new TypeError("proof key: must be an ECDSA P-256 key pair whose private key may sign");
    }
    return new ProofKey(pair);
  }

  /** Returns the thumbprint of RFC 7638. The boundKey of a session contains it. */
  async thumbprint(): Promise<string> {
    return (await this.describe()).thumbprint;
  }

  /** Returns a proof for one attempt of one request. It does not cover query and fragment of the URL. */
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
      const jwk = { crv, kty, x, y }; // in the order that RFC 7638 requires
      return {
        header: toBase64url(utf8(JSON.stringify({ typ: "dpop+jwt", alg: "ES256", jwk }))),
        thumbprint: toBase64url(await sha256(utf8(JSON.stringify(jwk)))),
      };
    })();
    return this.described;
  }
}
