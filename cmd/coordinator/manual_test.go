package main

import (
	"testing"

	"github.com/fedmesh/fedmesh/cmd/internal/manual"
)

func TestManual(t *testing.T) { manual.Test(t, rootCommand()) }
