// Package openwrt holds the script for gateways with OpenWrt, and a test of it
// with a stand-in for procd.
package openwrt
