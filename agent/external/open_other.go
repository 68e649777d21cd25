//go:build !unix

package external

const noFollow = 0
