package config

import "reflect"

// OneOrMore is a list of texts that may also be written as one text.
type OneOrMore []string

var oneOrMoreType = reflect.TypeFor[OneOrMore]()

// single returns the list that a text alone stands for: an empty text is none.
func single(text string) OneOrMore {
	if text == "" {
		return nil
	}
	return OneOrMore{text}
}
