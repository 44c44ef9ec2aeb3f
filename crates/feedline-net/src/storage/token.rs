//! The secret that a server and its clients share.
//!
//! The server sends a challenge. The client answers with a hash of it that only the holder of the token can compute. The token
//! itself is never sent.

use std::path::Path;
use std::{env, fs, io};

/// The environment variable with the path of the token's file.
const TOKEN_FILE: &str = "FEEDLINE_TOKEN_FILE";
/// The environment variable with the token itself.
const TOKEN: &str = "FEEDLINE_TOKEN";
/// The purpose of the derived key. A token used elsewhere gives other keys there.
const CONTEXT: &str = "feedline storage 2026-11-16 token";

/// A secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Token([u8; 32]);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
}

impl Token {
    /// A token from its text, without surrounding white space. `None` if it is empty.
    pub fn new(text: &str) -> Option<Self> {
        let text = text.trim();
        (!text.is_empty()).then(|| Self(blake3::derive_key(CONTEXT, text.as_bytes())))
    }

    /// The token in a file.
    pub fn read(path: &Path) -> io::Result<Self> {
        let empty = || io::Error::new(io::ErrorKind::InvalidData, "the file is empty");
        Self::new(&fs::read_to_string(path)?).ok_or_else(empty)
    }

    /// The token from the environment, if there is one.
    pub(crate) fn from_environment() -> io::Result<Option<Self>> {
        match (env::var(TOKEN), env::var_os(TOKEN_FILE)) {
            (Ok(text), _) => Ok(Self::new(&text)),
            (Err(_), Some(path)) => Self::read(Path::new(&path)).map(Some),
            (Err(_), None) => Ok(None),
        }
    }

    /// The answer to a challenge.
    pub fn proof(&self, challenge: &[u8; 32]) -> [u8; 32] {
        blake3::keyed_hash(&self.0, challenge).into()
    }

    /// Whether a proof is right, in constant time.
    pub(crate) fn accepts(&self, challenge: &[u8; 32], proof: &[u8; 32]) -> bool {
        // `blake3::Hash` compares in constant time. Comparing arrays would leak the length of the common prefix.
        blake3::keyed_hash(&self.0, challenge) == blake3::Hash::from(*proof)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_token_and_challenge_give_a_proof() {
        let token = Token::new(" secret\n").unwrap();
        let proof = Token::new("secret").unwrap().proof(&[7; 32]);
        assert!(token.accepts(&[7; 32], &proof));
        assert!(!token.accepts(&[8; 32], &proof));
        assert!(!Token::new("Secret").unwrap().accepts(&[7; 32], &proof));
        assert!(Token::new(" \n").is_none());
        assert_eq!(format!("{token:?}"), "Token(..)");
    }
}
