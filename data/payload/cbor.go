package payload

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"strconv"

	"github.com/fxamacker/cbor/v2"
)

// cborDecoder decodes CBOR to trees of objects, lists and values, as for JSON.
type cborDecoder struct{ clock TimeField }

// cborSelfDescription is the tag that a CBOR payload may begin with.
const cborSelfDescription = "\xd9\xd9\xf7"

// maxCBORDepth is the maximum nesting of maps, lists and tags.
const maxCBORDepth = 64

// cborMode decodes times as texts, and rejects two members with the same name.
var cborMode = func() cbor.DecMode {
	mode, err := cbor.DecOptions{MaxNestedLevels: maxCBORDepth, DupMapKey: cbor.DupMapKeyEnforcedAPF,
		MapKeyByteString: cbor.MapKeyByteStringAllowed, TimeTagToAny: cbor.TimeTagToRFC3339Nano,
		UnrecognizedTagToAny: cbor.UnrecognizedTagContentToAny}.DecMode()
	if err != nil {
		panic(err) // only occurs for invalid constants
	}
	return mode
}()

// beginsLikeCBOR reports whether a payload begins with a CBOR map, a CBOR list or the self-description tag. No text in
// UTF-8 begins with one of these bytes.
func beginsLikeCBOR(text []byte) bool {
	return len(text) > 0 && text[0] >= 0x80 && text[0] <= 0xbf || bytes.HasPrefix(text, []byte(cborSelfDescription))
}

// Decode implements Decoder.
func (d cborDecoder) Decode(m Message) (Content, error) {
	tree, err := parseCBOR(m.Payload)
	if err != nil {
		return Content{}, err
	}
	return TreeContent(tree, d.clock)
}

// parseCBOR parses one CBOR value.
func parseCBOR(text []byte) (any, error) {
	if len(text) == 0 {
		return nil, ErrEmpty
	}
	var v any
	rest, err := cborMode.UnmarshalFirst(text, &v)
	switch {
	case err != nil:
		return nil, fmt.Errorf("the CBOR payload of %d bytes is invalid: %w", len(text), err)
	case len(rest) > 0:
		return nil, fmt.Errorf("unexpected bytes after the CBOR value: it has %d bytes, the payload has %d",
			len(text)-len(rest), len(text))
	}
	return treeFromCBOR(v), nil
}

// treeFromCBOR converts a decoded value to the types of a JSON tree. A byte string becomes an unusable value.
func treeFromCBOR(v any) any {
	switch v := v.(type) {
	case map[any]any:
		object := make(map[string]any, len(v))
		for key, member := range v {
			object[cborKeyText(key)] = treeFromCBOR(member)
		}
		return object
	case []any:
		for i := range v {
			v[i] = treeFromCBOR(v[i])
		}
		return v
	case uint64:
		return json.Number(strconv.FormatUint(v, 10))
	case int64:
		return json.Number(strconv.FormatInt(v, 10))
	case big.Int:
		return json.Number(v.String())
	case float32:
		return numberValue(float64(v))
	case float64:
		return numberValue(v)
	case string, bool, nil:
		return v
	}
	return unusableValue{fmt.Sprintf("%T", v)}
}

// cborKeyText returns the key of a map as text. The labels of SenML, for example, are integers.
func cborKeyText(key any) string {
	switch key := key.(type) {
	case string:
		return key
	case cbor.ByteString:
		return string(key)
	}
	return fmt.Sprint(key)
}
